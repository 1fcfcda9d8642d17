/** Where things are, whatever folder a script was started from. */

import { homedir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), "../..");

/** A path inside this checkout. @param {...string} parts */
export function root(...parts) {
  return join(ROOT, ...parts);
}

/** Where cargo puts what it builds. */
export function cargoTarget() {
  return process.env.CARGO_TARGET_DIR ? resolve(ROOT, process.env.CARGO_TARGET_DIR) : root("target");
}

/** Where cargo puts what it installs. */
export function cargoBin() {
  return join(process.env.CARGO_HOME ?? join(homedir(), ".cargo"), "bin");
}

/** Whether a script was started itself, rather than imported. @param {string} url Its `import.meta.url`. */
export function isMain(url) {
  return process.argv[1] !== undefined && resolve(process.argv[1]) === fileURLToPath(url);
}
