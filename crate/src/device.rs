//! Opens the device that a model runs on.

mod recording;

use crate::error::{Error, Result};
use burn::backend::DispatchDevice;
use burn::tensor::Device;
use cubecl::client::Client;
pub(crate) use recording::{Recording, Words, read_words};

/// Launches that are submitted together: more than a token of any model takes, so that it is one submission.
const LAUNCHES_PER_SUBMIT: usize = 1024;

/// Opens the GPU: WebGPU in a browser, Vulkan, Metal or DX12 natively. A second call gives the same device.
///
/// # Errors
/// `WebGpuUnavailable` when there is no WebGPU or no adapter.
pub async fn open() -> Result<Device> {
    #[cfg(target_arch = "wasm32")]
    run_constructors();
    if let Some(device) = opened::get() {
        return Ok(device);
    }
    match Device::wgpu_options().tasks_max(LAUNCHES_PER_SUBMIT).init_async().await {
        Ok(device) => {
            opened::set(device.clone());
            Ok(device)
        }
        // Two callers may have opened it at the same time: the first one's device serves both.
        Err(error) => opened::get().ok_or_else(|| Error::WebGpuUnavailable(error.to_string())),
    }
}

/// The CPU device: slower, exact, always there.
#[cfg(not(target_arch = "wasm32"))]
pub fn cpu() -> Device {
    Device::flex()
}

/// What a GPU device can do, for people and for error messages.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceInfo {
    /// The backend's name, such as `wgpu<wgsl>`.
    pub backend: String,
    /// The bytes that one kernel argument may have.
    pub max_buffer_bytes: u64,
    /// Storage buffers that one kernel may bind.
    pub max_bindings: u32,
    /// Units of the largest cube.
    pub max_units: u32,
    /// Bytes of memory that a cube shares.
    pub max_shared_memory_bytes: usize,
}

impl DeviceInfo {
    /// The abilities of the GPU that [`open`] opened.
    pub fn of_gpu() -> Self {
        let client = burn_cubecl::CubeDevice::Wgpu(Default::default()).client();
        let properties = client.properties();
        Self {
            backend: client.name().to_owned(),
            max_buffer_bytes: properties.memory.max_page_size,
            max_bindings: properties.hardware.max_bindings,
            max_units: properties.hardware.max_units_per_cube,
            max_shared_memory_bytes: properties.hardware.max_shared_memory_size,
        }
    }
}

/// Submits what was enqueued on `device`, so that it begins with it and is not given too much at once.
pub(crate) fn submit(device: &Device) {
    match device.as_dispatch() {
        // A failure shows when a result is read.
        DispatchDevice::Cube(device) => drop(device.client().flush()),
        #[cfg(not(target_arch = "wasm32"))]
        _ => {}
    }
}

/// Waits until `device` has done everything that was enqueued.
///
/// # Errors
/// `Device` when the device failed.
pub(crate) async fn sync(device: &Device) -> Result<()> {
    match device.as_dispatch() {
        DispatchDevice::Cube(device) => finished(device.client()).await,
        #[cfg(not(target_arch = "wasm32"))]
        _ => Ok(()),
    }
}

/// Waits until the GPU has done everything that was enqueued: the back-pressure of uploads.
///
/// # Errors
/// `Device` when the device failed.
pub async fn sync_gpu() -> Result<()> {
    finished(burn_cubecl::CubeDevice::Wgpu(Default::default()).client()).await
}

async fn finished(client: Client) -> Result<()> {
    client.sync().await.map_err(|error| Error::Device(error.to_string()))
}

/// The device that was opened first.
mod opened {
    use burn::tensor::Device;
    use std::sync::{OnceLock, PoisonError, RwLock};

    static DEVICE: OnceLock<RwLock<Option<Device>>> = OnceLock::new();

    fn cell() -> &'static RwLock<Option<Device>> {
        DEVICE.get_or_init(Default::default)
    }

    pub(super) fn get() -> Option<Device> {
        cell().read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set(device: Device) {
        *cell().write().unwrap_or_else(PoisonError::into_inner) = Some(device);
    }
}

/// Runs the static constructors, once.
///
/// CubeCL registers its interfaces with them (through `inventory`). A module that never calls `__wasm_call_ctors` makes the linker wrap every
/// export in a call of it, so that all of them run again each time that JavaScript calls in, 6 ms each; one that does call it must do so before
/// anything else, in a test binary too, where no start function runs.
#[cfg(target_arch = "wasm32")]
pub(crate) fn run_constructors() {
    unsafe extern "C" {
        fn __wasm_call_ctors();
    }
    static ONCE: std::sync::Once = std::sync::Once::new();
    // SAFETY: the linker defines this symbol, it takes and returns nothing, and it runs once, before any code that relies on it.
    ONCE.call_once(|| unsafe { __wasm_call_ctors() });
}
