/** The built package: what is in it, how big it is, and that the linker put nothing in the way of its exports. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { brotliCompressSync } from "node:zlib";
import { MAX_BROTLI_BYTES } from "../../scripts/build.mjs";
import { cargoTarget, root } from "../../scripts/lib/paths.mjs";
import { firstCallsOfExports } from "./wasm-module.mjs";

const BUILT = root("pkg/hearth_bg.wasm");
/** What the linker wrote, before tools removed the names. */
const LINKED = join(cargoTarget(), "wasm32-unknown-unknown/wasm/deps/hearth.wasm");
/** One or two exports may well begin with a call of the same function. */
const COINCIDENCE = 2;

test("no export re-runs the static constructors", async () => {
  const { exported, firstCalls } = firstCallsOfExports(await readFile(BUILT));
  assert.ok(exported > 5, `${exported} exported functions were found`);
  for (const names of firstCalls.values()) {
    assert.ok(names.length <= COINCIDENCE, `${names.length} exports begin with the same call: ${names.join(", ")}`);
  }
});

test("the linker left no .command_export wrapper", async () => {
  const linked = await readFile(LINKED).catch(() => assert.fail(`${LINKED} is missing: delete pkg/ and build again`));
  assert.ok(linked.includes("__wasm_call_ctors"), "the linked module still has its names");
  assert.equal(linked.includes(".command_export"), false);
});

test("the check for constructors sees them where they are, before and after wasm-opt", async () => {
  const wrapped = (/** @type {string} */ first) => `(module
    (import "env" "memory" (memory 1))
    (import "env" "table" (table 1 10 funcref))
    (import "env" "global" (global i32))
    (import "env" "log" (func $log (param i32)))
    (func $constructors (call $log (i32.const 1)) (call $log (i32.const 2)))
    ${["a", "b", "c"]
      .map((name) => `(func (export "${name}") (param i32) (local i64) ${first} (call $log (local.get 0)))`)
      .join("\n")})`;
  const folder = await mkdtemp(join(tmpdir(), "hearth-wasm-"));
  /** @param {string} tool @param {string[]} args */
  const binaryen = (tool, ...args) =>
    execFileSync(process.execPath, [root("node_modules/binaryen/bin", tool), ...args]);
  const [wat, wasm] = [join(folder, "module.wat"), join(folder, "module.wasm")];
  try {
    for (const [first, expected] of /** @type {const} */ ([
      ["(call $constructors)", [["a", "b", "c"]]],
      ["", []],
    ])) {
      await writeFile(wat, wrapped(first));
      binaryen("wasm-as", wat, "-o", wasm);
      assert.deepEqual([...firstCallsOfExports(await readFile(wasm)).firstCalls.values()], expected);
      binaryen("wasm-opt", wasm, "-O1", "-o", wasm);
      assert.deepEqual([...firstCallsOfExports(await readFile(wasm)).firstCalls.values()], expected);
    }
  } finally {
    await rm(folder, { recursive: true });
  }
});

test("a visitor downloads at most 3 MiB of WebAssembly", async () => {
  const { length } = brotliCompressSync(await readFile(BUILT));
  assert.ok(length <= MAX_BROTLI_BYTES, `${length} bytes of brotli`);
});

test("the npm package holds what its entry needs, and nothing of the page", () => {
  const output = execFileSync("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], {
    cwd: root(),
    encoding: "utf8",
  });
  // Some versions of npm print a list, others an object by package name.
  const [{ files }] = /** @type {{ files: { path: string }[] }[]} */ (Object.values(JSON.parse(output)));
  assert.deepEqual(files.map(({ path }) => path).sort(), [
    "CHANGELOG.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "package.json",
    "pkg/hearth.d.ts",
    "pkg/hearth.js",
    "pkg/hearth_bg.wasm",
    "pkg/hearth_bg.wasm.d.ts",
    "web/client.js",
    "web/download.js",
    "web/hearth.js",
    "web/models.json",
    "web/protocol.js",
    "web/submissions.js",
    "web/worker.js",
  ]);
});
