/*
 * A Vulkan driver for tests: Mesa's lavapipe, in the guise of SwiftShader.
 *
 * Chromium's own software adapter, SwiftShader, has no shader-f16, bindings of 1 GiB and subgroups
 * of 4. Lavapipe, which runs on the processor as well, has shader-f16, bindings of 128 MiB and
 * larger subgroups, but Chromium does not use it for WebGPU: it takes no software adapter but
 * SwiftShader, which it knows by its vendor and device id, and none without two features that
 * lavapipe lacks, dynamic indexing of arrays of sampled images and of storage images. Compute
 * shaders without textures need neither. Built as libvk_swiftshader.so and put in its place beside
 * Chromium, this library loads lavapipe and passes every call on to it, except that
 *
 *   - the ids are SwiftShader's,
 *   - the two features are said to be there, and
 *   - a device that asks for them is created without.
 */

#define VK_NO_PROTOTYPES
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <vulkan/vulkan.h>

#define EXPORT __attribute__((visibility("default")))

enum { SWIFTSHADER_VENDOR = 0x1AE0, SWIFTSHADER_DEVICE = 0xC0DE };

/* Lavapipe's functions behind ours. They are the same for all its instances. */
static struct {
    PFN_vkGetPhysicalDeviceProperties get_properties;
    PFN_vkGetPhysicalDeviceProperties2 get_properties2;
    PFN_vkGetPhysicalDeviceFeatures get_features;
    PFN_vkGetPhysicalDeviceFeatures2 get_features2;
    PFN_vkCreateDevice create_device;
} lavapipe;

/* A symbol of lavapipe's library, which is loaded at the first call; NULL where there is none. */
static void *lavapipe_symbol(const char *name) {
    static void *library;
    if (!library) library = dlopen("libvulkan_lvp.so", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "f16-adapter: %s\n", dlerror());
        return NULL;
    }
    return dlsym(library, name);
}

static void set_ids(VkPhysicalDeviceProperties *properties) {
    properties->vendorID = SWIFTSHADER_VENDOR;
    properties->deviceID = SWIFTSHADER_DEVICE;
}

static void set_image_indexing(VkPhysicalDeviceFeatures *features, VkBool32 value) {
    features->shaderSampledImageArrayDynamicIndexing = value;
    features->shaderStorageImageArrayDynamicIndexing = value;
}

static VKAPI_ATTR void VKAPI_CALL get_properties(VkPhysicalDevice device,
                                                 VkPhysicalDeviceProperties *properties) {
    lavapipe.get_properties(device, properties);
    set_ids(properties);
}

static VKAPI_ATTR void VKAPI_CALL get_properties2(VkPhysicalDevice device,
                                                  VkPhysicalDeviceProperties2 *properties) {
    lavapipe.get_properties2(device, properties);
    set_ids(&properties->properties);
}

static VKAPI_ATTR void VKAPI_CALL get_features(VkPhysicalDevice device,
                                               VkPhysicalDeviceFeatures *features) {
    lavapipe.get_features(device, features);
    set_image_indexing(features, VK_TRUE);
}

static VKAPI_ATTR void VKAPI_CALL get_features2(VkPhysicalDevice device,
                                                VkPhysicalDeviceFeatures2 *features) {
    lavapipe.get_features2(device, features);
    set_image_indexing(&features->features, VK_TRUE);
}

/* The features that a device is to have are in one of two places. */
static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical_device,
                                                    const VkDeviceCreateInfo *info,
                                                    const VkAllocationCallbacks *allocator,
                                                    VkDevice *device) {
    VkDeviceCreateInfo changed_info = *info;
    VkPhysicalDeviceFeatures changed_features;
    if (info->pEnabledFeatures) {
        changed_features = *info->pEnabledFeatures;
        set_image_indexing(&changed_features, VK_FALSE);
        changed_info.pEnabledFeatures = &changed_features;
    }

    VkBaseOutStructure *link = (VkBaseOutStructure *)info->pNext;
    while (link && link->sType != VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2) link = link->pNext;
    if (!link) return lavapipe.create_device(physical_device, &changed_info, allocator, device);

    /* A chain of unknown links cannot be copied: what is changed in it is put back. */
    VkPhysicalDeviceFeatures *chained = &((VkPhysicalDeviceFeatures2 *)link)->features;
    const VkPhysicalDeviceFeatures requested = *chained;
    set_image_indexing(chained, VK_FALSE);
    const VkResult result =
        lavapipe.create_device(physical_device, &changed_info, allocator, device);
    *chained = requested;
    return result;
}

/* Keeps lavapipe's function, and gives ours, where the two have this name. */
#define REPLACE(vulkan_name, function)                                \
    if (!strcmp(name, vulkan_name)) {                                 \
        lavapipe.function = (__typeof__(lavapipe.function))lavapipes; \
        return (PFN_vkVoidFunction)function;                          \
    }

/* How Chromium finds every other function. */
EXPORT VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vkGetInstanceProcAddr(VkInstance instance,
                                                                      const char *name) {
    if (!strcmp(name, "vkGetInstanceProcAddr")) return (PFN_vkVoidFunction)vkGetInstanceProcAddr;
    const PFN_vkGetInstanceProcAddr get =
        (PFN_vkGetInstanceProcAddr)lavapipe_symbol("vk_icdGetInstanceProcAddr");
    const PFN_vkVoidFunction lavapipes = get ? get(instance, name) : NULL;
    if (!lavapipes) return NULL;
    REPLACE("vkGetPhysicalDeviceProperties", get_properties)
    REPLACE("vkGetPhysicalDeviceProperties2", get_properties2)
    REPLACE("vkGetPhysicalDeviceProperties2KHR", get_properties2)
    REPLACE("vkGetPhysicalDeviceFeatures", get_features)
    REPLACE("vkGetPhysicalDeviceFeatures2", get_features2)
    REPLACE("vkGetPhysicalDeviceFeatures2KHR", get_features2)
    REPLACE("vkCreateDevice", create_device)
    return lavapipes;
}

/* The same under the name by which a Vulkan loader asks a driver. */
EXPORT VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vk_icdGetInstanceProcAddr(VkInstance instance,
                                                                          const char *name) {
    return vkGetInstanceProcAddr(instance, name);
}

/* Which version of their interface loader and driver speak. */
EXPORT VKAPI_ATTR VkResult VKAPI_CALL vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version) {
    typedef VkResult(VKAPI_PTR * Negotiate)(uint32_t *);
    const Negotiate negotiate =
        (Negotiate)lavapipe_symbol("vk_icdNegotiateLoaderICDInterfaceVersion");
    return negotiate ? negotiate(version) : VK_ERROR_INCOMPATIBLE_DRIVER;
}
