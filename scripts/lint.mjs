/** `npm run lint`: formatting, types, the crate's one-way rule, clippy. The first that complains ends it. */

import { existsSync } from "node:fs";
import { WASM_CARGO_OPTIONS, build } from "./build.mjs";
import { isMain, root } from "./lib/paths.mjs";
import { main, run, step } from "./lib/run.mjs";
import { setup } from "./setup.mjs";

export async function lint() {
  await setup();
  // The worker is checked against the types that the build writes.
  if (!existsSync(root("pkg/hearth.d.ts"))) await build();

  step("Prettier");
  await run("npx", ["--no-install", "prettier", "--check", "."]);
  step("Types of the scripts and tests, of the page, then of the bench");
  await run("npx", ["--no-install", "tsc", "-p", "tsconfig.json"]);
  await run("npx", ["--no-install", "tsc", "-p", "web/tsconfig.json"]);
  await run("npx", ["--no-install", "tsc", "-p", "bench/tsconfig.json"]);
  step("Who may use whom in the crate");
  await run(process.execPath, [root("scripts/lint-modules.mjs")]);
  step("rustfmt");
  await run("cargo", ["fmt", "--all", "--check"]);
  step("clippy, natively", "several minutes the first time");
  await run("cargo", ["clippy", "--release", "--all-targets", "--", "-D", "warnings"]);
  step("clippy, for WebAssembly", "several minutes the first time");
  await run("cargo", ["clippy", ...WASM_CARGO_OPTIONS, "--lib", "--test", "web", "--", "-D", "warnings"]);
}

if (isMain(import.meta.url)) await main(lint);
