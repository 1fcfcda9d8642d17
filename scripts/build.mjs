/**
 * Builds the crate into pkg/: wasm-pack, then wasm-opt, then the sizes a visitor pays for. Does nothing when neither
 * the crate nor the way it is built has changed since the last time.
 */

import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { readFile, readdir, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { brotliCompress, gzip } from "node:zlib";
import { isMain, root } from "./lib/paths.mjs";
import { Failure, main, run, step } from "./lib/run.mjs";

const INPUTS = [
  "Cargo.lock",
  "Cargo.toml",
  "crate/Cargo.toml",
  "crate/src",
  "rust-toolchain.toml",
  "scripts/build.mjs",
];
const WASM = root("pkg/hearth_bg.wasm");
const STAMP = root("pkg/build.json");
const MIB = 1024 * 1024;
export const MAX_BROTLI_BYTES = 3 * MIB;

/** The crate without its command line. */
const WASM_FEATURE_OPTIONS = ["--no-default-features"];
/** How cargo compiles for the browser; the same everywhere, so that the dependencies are compiled once. */
export const WASM_CARGO_OPTIONS = [
  ...["--profile", "wasm", "--target", "wasm32-unknown-unknown"],
  ...WASM_FEATURE_OPTIONS,
];

/** What Rust's wasm32-unknown-unknown emits; wasm-opt refuses what it is not told about. */
const WASM_FEATURES = [
  "--enable-bulk-memory",
  "--enable-bulk-memory-opt",
  "--enable-call-indirect-overlong",
  "--enable-multivalue",
  "--enable-mutable-globals",
  "--enable-nontrapping-float-to-int",
  "--enable-reference-types",
  "--enable-sign-ext",
];

/** Makes pkg/ what the sources say. */
export async function build() {
  const inputs = await hashOf(INPUTS);
  const built = await readStamp();
  if (built?.inputs === inputs && existsSync(WASM)) {
    console.log(`\n▸ pkg/ is up to date: ${describe(built.sizes)}`);
    return;
  }
  await rm(STAMP, { force: true });

  step("Compiling the crate to WebAssembly", "about 10 minutes the first time, half a minute after a change");
  await run("wasm-pack", [
    ...["build", "crate", "--target", "web", "--out-dir", "../pkg", "--out-name", "hearth"],
    ...["--profile", "wasm", "--mode", "no-install", "--no-opt", "--no-pack", "--", ...WASM_FEATURE_OPTIONS],
  ]);
  // It would keep everything beside it out of the npm package.
  await rm(root("pkg/.gitignore"), { force: true });

  step("Optimizing it with wasm-opt", "1 to 3 minutes");
  const wasmOpt = root("node_modules/binaryen/bin/wasm-opt");
  await run(process.execPath, [wasmOpt, WASM, "-o", `${WASM}.new`, "-O1", ...WASM_FEATURES]);
  await rename(`${WASM}.new`, WASM);

  const sizes = await measure(WASM);
  console.log(`\npkg/hearth_bg.wasm: ${describe(sizes)}`);
  if (sizes.brotli > MAX_BROTLI_BYTES) {
    throw new Failure(
      `That is more than the ${MAX_BROTLI_BYTES / MIB} MiB (brotli) that a visitor should have to download.`,
    );
  }
  await writeFile(STAMP, JSON.stringify({ inputs, sizes }, null, 2) + "\n");
}

/** What a file takes, and what a visitor downloads of it. @param {string} path */
export async function measure(path) {
  const bytes = await readFile(path);
  const [zipped, brotlied] = await Promise.all([
    promisify(gzip)(bytes, { level: 9 }),
    promisify(brotliCompress)(bytes),
  ]);
  return { raw: bytes.length, gzip: zipped.length, brotli: brotlied.length };
}

/** @param {{ raw: number, gzip: number, brotli: number }} sizes */
function describe({ raw, gzip, brotli }) {
  const mib = (/** @type {number} */ bytes) => `${(bytes / MIB).toFixed(2)} MiB`;
  return `${mib(raw)}, ${mib(gzip)} gzip, ${mib(brotli)} brotli`;
}

/** @param {string[]} inputs */
async function hashOf(inputs) {
  const hash = createHash("sha256");
  for (const file of (await Promise.all(inputs.map(filesUnder))).flat().sort()) {
    hash
      .update(file)
      .update("\0")
      .update(await readFile(root(file)))
      .update("\0");
  }
  return hash.digest("hex");
}

/**
 * @param {string} path Of a file or a folder.
 * @returns {Promise<string[]>}
 */
async function filesUnder(path) {
  const entries = await readdir(root(path), { withFileTypes: true, recursive: true }).catch((error) => {
    if (error.code === "ENOTDIR") return null;
    throw error;
  });
  if (entries === null) return [path];
  const prefix = root();
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(prefix.length));
}

/** @returns {Promise<{ inputs: string, sizes: { raw: number, gzip: number, brotli: number } } | null>} */
async function readStamp() {
  return readFile(STAMP, "utf8").then(JSON.parse, () => null);
}

if (isMain(import.meta.url)) await main(build);
