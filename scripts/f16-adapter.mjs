/**
 * Makes a second software adapter for the tests, one with shader-f16 and bindings of 128 MiB: a Chromium whose
 * SwiftShader is Mesa's lavapipe, behind tests/f16-adapter/shim.c. It lies in a folder outside the checkout, and is made
 * again when the browser or what is put into it has changed.
 */

import { createHash } from "node:crypto";
import { constants, existsSync } from "node:fs";
import { copyFile, mkdir, readFile, readdir, realpath, rm, stat, symlink, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { findChrome } from "./lib/browser.mjs";
import { isMain, root } from "./lib/paths.mjs";
import { Failure, main, run, step } from "./lib/run.mjs";
import { setupF16Adapter, setupTests } from "./setup.mjs";

const CACHE = resolve(process.env.HEARTH_F16_ADAPTER_CACHE ?? join(homedir(), ".cache/hearth-f16-adapter"));
const BROWSER = join(CACHE, "browser");
/** Says what the browser was made of. */
const STAMP = join(CACHE, "browser.json");

const SHIM = root("tests/f16-adapter/shim.c");
const GCC_OPTIONS = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC", "-fvisibility=hidden"];
/** What Chromium loads as SwiftShader, from its executable's folder. */
const DRIVER = "libvk_swiftshader.so";
/** Describes the driver. SwiftShader's own says Vulkan 1.0, under which nobody asks lavapipe for its later limits. */
const MANIFEST = "vk_swiftshader_icd.json";
const DESCRIPTION = { file_format_version: "1.0.0", ICD: { library_path: `./${DRIVER}`, api_version: "1.3.0" } };

/** The command on the PATH may be a script; this is what it runs in the end, and where packages put it. */
const EXECUTABLES = ["chromium", "chrome"];
const FOLDERS = ["/usr/lib/chromium", "/usr/lib64/chromium-browser", "/opt/google/chrome"];

/** Whether a system can have this adapter at all. */
export const HAS_F16_ADAPTER = process.platform === "linux";

/** @returns {Promise<string>} The path of the browser that has the adapter, as `CHROME_PATH` takes it. */
export async function f16Chrome() {
  await setupF16Adapter();
  const original = await findExecutable();
  const executable = join(BROWSER, original.name);
  const inputs = await inputsOf(original);
  if (existsSync(executable) && (await readFile(STAMP, "utf8").catch(() => null)) === inputs) return executable;

  step("Making the adapter with f16", `seconds, and 0.3 GB in ${CACHE}`);
  await rm(STAMP, { force: true });
  await rm(BROWSER, { recursive: true, force: true });
  await mkdir(BROWSER, { recursive: true });
  for (const name of await readdir(original.folder)) {
    if ([original.name, DRIVER, MANIFEST].includes(name)) continue;
    await symlink(join(original.folder, name), join(BROWSER, name));
  }
  // A link would not do: the browser looks for the driver beside the file that the link leads to.
  await copyFile(join(original.folder, original.name), executable, constants.COPYFILE_FICLONE);
  await run("gcc", [...GCC_OPTIONS, SHIM, "-o", join(BROWSER, DRIVER), "-ldl"]);
  await writeFile(join(BROWSER, MANIFEST), JSON.stringify(DESCRIPTION));
  await writeFile(STAMP, inputs);
  return executable;
}

/** @typedef {{ folder: string, name: string }} Executable */

/** @returns {Promise<Executable>} The browser that has SwiftShader beside it, and is not of our making. */
async function findExecutable() {
  const chrome = findChrome();
  const folders = [...(chrome ? [dirname(await realpath(chrome))] : []), ...FOLDERS];
  for (const folder of folders) {
    const name = EXECUTABLES.find((name) => existsSync(join(folder, name)));
    if (name && folder !== BROWSER && existsSync(join(folder, DRIVER))) return { folder, name };
  }
  throw new Failure(`There is no Chrome or Chromium with ${DRIVER} beside it in ${folders.join(", ")}.`);
}

/** @param {Executable} original */
async function inputsOf({ folder, name }) {
  const { size, mtimeMs } = await stat(join(folder, name));
  const ours = createHash("sha256")
    .update(await readFile(SHIM))
    .update(JSON.stringify([GCC_OPTIONS, DESCRIPTION]));
  return JSON.stringify({ folder, name, size, mtimeMs, ours: ours.digest("hex") });
}

if (isMain(import.meta.url)) {
  await main(async () => {
    await setupTests();
    console.log(`\nThe browser that has it: ${await f16Chrome()}`);
  });
}
