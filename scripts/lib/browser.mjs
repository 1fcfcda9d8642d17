/** The browser that tests use, and the flags that give it WebGPU on a machine without a graphics card. */

import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";

const CHROMES = ["chromium", "google-chrome", "google-chrome-stable", "chromium-browser", "chrome"];

/** WebGPU on SwiftShader, Chromium's own software adapter. */
export const SOFTWARE_WEBGPU = [
  "--enable-unsafe-webgpu",
  "--use-webgpu-adapter=swiftshader",
  "--enable-features=Vulkan",
];

export const QUIET = [
  "--no-sandbox",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** @returns {string | null} `CHROME_PATH`, or the first Chrome or Chromium on the PATH. */
export function findChrome() {
  return process.env.CHROME_PATH ?? findProgram(CHROMES);
}

/** @returns {string | null} `CHROMEDRIVER`, or the one on the PATH. */
export function findChromedriver() {
  return process.env.CHROMEDRIVER ?? findProgram(["chromedriver"]);
}

/** @param {string[]} names */
function findProgram(names) {
  const folders = ["/usr/bin", ...(process.env.PATH ?? "").split(delimiter)];
  return names.flatMap((name) => folders.map((folder) => join(folder, name))).find((path) => existsSync(path)) ?? null;
}
