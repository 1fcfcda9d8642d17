/** The one-way rule's checker, on made-up files. */

import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { root } from "../../scripts/lib/paths.mjs";
import { ORDER, checkFile, checkModules } from "../../scripts/lint-modules.mjs";

test("accepts a module that uses those to its left, itself and the error", () => {
  const source = "use crate::error::Result;\nuse crate::quant::Block;\nfn f() -> crate::kernels::Shape { todo!() }";
  assert.deepEqual(checkFile("kernels/matmul.rs", source), []);
});

test("names file, line and direction of a path to the right", () => {
  assert.deepEqual(checkFile("quant/mod.rs", "//! Blocks.\n\nuse crate::kernels::launch;\n"), [
    "quant/mod.rs:3: `quant` may not use `kernels`, which is to its right",
  ]);
});

test("sees paths in the middle of code, not only in `use`", () => {
  const [problem] = checkFile("format/gguf.rs", "fn f() {\n    let x = crate::models::llama::load();\n}");
  assert.match(problem, /^format\/gguf\.rs:2: `format` may not use `models`/);
});

test("looks into groups, at their first level only", () => {
  const source = "use crate::{\n    error::{Error, web},\n    generation::Session,\n    quant::kernels,\n};";
  assert.deepEqual(checkFile("tokenizer/bpe.rs", source), [
    "tokenizer/bpe.rs:1: `tokenizer` may not use `generation`, which is to its right",
  ]);
});

test("follows super paths out of files and inline modules", () => {
  assert.equal(checkFile("quant/q4.rs", "use super::super::kernels::launch;").length, 1);
  assert.equal(checkFile("device.rs", "use super::models::Llama;").length, 1);
  assert.equal(checkFile("quant/q4.rs", "mod tests {\n    use super::super::super::kernels::launch;\n}").length, 1);
  assert.deepEqual(checkFile("quant/q4.rs", "use super::Block;\nmod tests {\n    use super::*;\n}"), []);
  assert.deepEqual(checkFile("quant/q4.rs", "fn f() { if a { b } }\nmod tests {\n    use super::super::Block;\n}"), []);
});

test("ignores comments, doc examples and strings", () => {
  const source = [
    "//! See [`crate::web`].",
    "/* crate::web */",
    'const A: &str = "crate::web \\" crate::web";',
    'const B: &str = r#"crate::web "quoted" crate::web"#;',
    "const C: char = '\"';",
    "fn lifetimes<'a>(x: &'a str) {}",
  ].join("\n");
  assert.deepEqual(checkFile("quant/mod.rs", source), []);
});

test("is not fooled by a quote in a character literal or by lifetimes", () => {
  const source = "fn f<'a>(x: &'a str) -> char { '\"' }\nuse crate::web::Engine;\nconst Q: char = '\\'';";
  assert.deepEqual(checkFile("store/mod.rs", source), [
    "store/mod.rs:2: `store` may not use `web`, which is to its right",
  ]);
});

test("refuses what is re-exported at the root, and modules that have no place", () => {
  assert.match(checkFile("quant/mod.rs", "use crate::Error;")[0], /`crate::Error` is no module of the order/);
  assert.match(checkFile("quant/mod.rs", "use crate::*;")[0], /`crate::\*` is no module of the order/);
  assert.match(checkFile("helpers.rs", "")[0], /`helpers` has no place/);
});

test("leaves the crate's map and its binaries alone", () => {
  assert.deepEqual(checkFile("lib.rs", "pub use crate::web::Engine;"), []);
  assert.deepEqual(checkFile("bin/hearth.rs", "use crate::args::Args;"), []);
});

test("finds every file of a tree, and has every module of the design in order", async () => {
  const folder = await mkdtemp(join(tmpdir(), "hearth-lint-"));
  try {
    await mkdir(join(folder, "models/llama"), { recursive: true });
    await writeFile(join(folder, "lib.rs"), "mod error;\nmod models;\n");
    await writeFile(join(folder, "error.rs"), "use crate::models::llama::Block;\n");
    await writeFile(join(folder, "models/llama/block.rs"), "use crate::{device, inference::Engine};\n");
    assert.deepEqual(await checkModules(folder), [
      "error.rs:1: `error` may not use `models`, which is to its right",
      "models/llama/block.rs:1: `models` may not use `inference`, which is to its right",
    ]);
  } finally {
    await rm(folder, { recursive: true });
  }
  assert.deepEqual(ORDER, [...new Set(ORDER)]);
});

test("the crate keeps the rule", async () => {
  assert.deepEqual(await checkModules(root("crate/src")), []);
});
