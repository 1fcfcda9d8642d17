/**
 * Sets up what is missing to build Hearth, and nothing else: the WebAssembly target, wasm-bindgen in the version that
 * Cargo.lock asks for, wasm-pack, npm packages. Tests need a browser and a Vulkan driver as well.
 */

import { existsSync, readdirSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { findChrome, findChromedriver } from "./lib/browser.mjs";
import { isMain, root } from "./lib/paths.mjs";
import { Failure, capture, main, run, step } from "./lib/run.mjs";

const TARGET = "wasm32-unknown-unknown";
/** The first wasm-pack that builds with a profile of our own, and the one that is installed where none is. */
const WASM_PACK = { oldest: "0.14.0", install: "0.15.1" };
/** Tools are built once and run for seconds: compiling them quickly matters more than their speed. */
const QUICK_BUILD = { CARGO_PROFILE_RELEASE_OPT_LEVEL: "1" };
const VULKAN_DRIVERS = ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d"];

/** What building needs. */
export async function setup() {
  checkNode();
  checkRust();
  await addTarget();
  await installWasmBindgen();
  await installWasmPack();
  await installPackages();
}

/** What testing needs on top of it. */
export async function setupTests() {
  await installSystemPackages("Chrome or Chromium, its chromedriver, and a Vulkan driver", [
    ...(findChrome() ? [] : ["chromium"]),
    ...(findChromedriver() ? [] : ["chromium-driver"]),
    ...(process.platform === "linux" && !hasVulkanDriver() ? ["mesa-vulkan-drivers"] : []),
  ]);
}

/** What the second adapter (`f16-adapter.mjs`) needs on top of that. */
export async function setupF16Adapter() {
  await installSystemPackages("a C compiler, Vulkan’s headers, and Mesa’s lavapipe for the adapter with f16", [
    ...(capture("gcc", ["--version"]) === null ? ["gcc", "libc6-dev"] : []),
    ...(existsSync("/usr/include/vulkan/vulkan.h") ? [] : ["libvulkan-dev"]),
    ...(hasVulkanDriver("lvp") ? [] : ["mesa-vulkan-drivers"]),
  ]);
}

/**
 * @param {string} what The tests need.
 * @param {string[]} missing What Debian calls those parts of it that are not here.
 */
async function installSystemPackages(what, missing) {
  if (missing.length === 0) return;

  const mayInstall = process.getuid?.() === 0 || process.env.CI === "true";
  if (!mayInstall || !existsSync("/usr/bin/apt-get")) {
    throw new Failure(
      `The tests need ${what}. On Debian or Ubuntu:\n` +
        `  sudo apt-get install ${missing.join(" ")}\n` +
        `Elsewhere, install them and set CHROME_PATH and CHROMEDRIVER if they are not on the PATH.`,
    );
  }
  step(`Installing ${missing.join(", ")} for the tests`, "about a minute");
  const apt = process.getuid?.() === 0 ? ["apt-get"] : ["sudo", "-n", "apt-get"];
  const env = { DEBIAN_FRONTEND: "noninteractive" };
  await run(apt[0], [...apt.slice(1), "update", "-qq"], { env });
  await run(apt[0], [...apt.slice(1), "install", "-y", "-qq", "--no-install-recommends", ...missing], { env });
}

function checkNode() {
  const major = Number(process.versions.node.split(".")[0]);
  if (major < 20) throw new Failure(`Node 20 or newer is needed; this is ${process.version}. See https://nodejs.org`);
}

function checkRust() {
  if (capture("cargo", ["--version"]) !== null) return;
  throw new Failure(
    capture("rustup", ["--version"]) === null
      ? "Rust is needed. Install it from https://rustup.rs, open a new terminal, and run this again."
      : "rustup is there, but the toolchain of rust-toolchain.toml is not: run `rustup show` here to see why.",
  );
}

async function addTarget() {
  const installed = capture("rustup", ["target", "list", "--installed"]);
  if (installed === null) {
    const folder = capture("rustc", ["--print", "target-libdir", "--target", TARGET]);
    if (folder && existsSync(folder)) return;
    throw new Failure(`Rust has no ${TARGET} target here, and there is no rustup to add it. See https://rustup.rs`);
  }
  if (installed.split("\n").includes(TARGET)) return;
  step("Adding the WebAssembly target to Rust", "less than a minute");
  await run("rustup", ["target", "add", TARGET]);
}

async function installWasmBindgen() {
  const lock = await readFile(root("Cargo.lock"), "utf8");
  const wanted = /name = "wasm-bindgen"\nversion = "([^"]+)"/.exec(lock)?.[1];
  if (!wanted) throw new Failure("Cargo.lock names no wasm-bindgen: is this a complete checkout?");
  if (capture("wasm-bindgen", ["--version"]) === `wasm-bindgen ${wanted}`) return;
  step(`Installing wasm-bindgen-cli ${wanted}, which must match the crate`, "3 to 6 minutes");
  await run("cargo", ["install", "wasm-bindgen-cli", "--version", wanted, "--force"], { env: QUICK_BUILD });
}

async function installWasmPack() {
  const version = capture("wasm-pack", ["--version"])?.split(" ")[1];
  if (version && version.localeCompare(WASM_PACK.oldest, "en", { numeric: true }) >= 0) return;
  step(`Installing wasm-pack ${WASM_PACK.install}`, "3 to 5 minutes");
  await run("cargo", ["install", "wasm-pack", "--version", WASM_PACK.install, "--force"], { env: QUICK_BUILD });
}

async function installPackages() {
  if (existsSync(root("node_modules/.package-lock.json")) && existsSync(root("web/vendor"))) return;
  step("Installing the npm packages", "about half a minute");
  await run("npm", ["ci"]);
}

/** @param {string} [name] Of any, where it is left out. */
function hasVulkanDriver(name = "") {
  return VULKAN_DRIVERS.filter((folder) => existsSync(folder))
    .flatMap((folder) => readdirSync(folder))
    .some((file) => file.startsWith(name) && file.endsWith(".json"));
}

if (isMain(import.meta.url)) {
  await main(async () => {
    await setup();
    console.log("\nEverything that a build needs is here.");
  });
}
