/**
 * `npm test`: every test there is, one kind after the other. A kind that fails, or in which nothing ran, fails it all;
 * the others still run, so that one look at the end tells what is wrong.
 */

import { readdirSync } from "node:fs";
import { WASM_CARGO_OPTIONS, build } from "./build.mjs";
import { HAS_F16_ADAPTER, f16Chrome } from "./f16-adapter.mjs";
import { findChrome, findChromedriver } from "./lib/browser.mjs";
import { isMain, root } from "./lib/paths.mjs";
import { Failure, main, run, step } from "./lib/run.mjs";
import { fetchModel } from "./model.mjs";
import { setup, setupTests } from "./setup.mjs";

/** Software adapters are slow: what takes a second on a graphics card may take minutes in a browser here. For all tests. */
const BROWSER_TIMEOUT_S = 3600;

/**
 * @typedef {object} Suite
 * @property {string} title
 * @property {string} duration
 * @property {() => Promise<number>} run How many tests passed.
 */

/** @returns {Suite[]} */
function suites() {
  return [
    {
      title: "The page’s and the scripts’ modules",
      duration: "seconds",
      run: () => nodeTests("tests/unit"),
    },
    {
      title: "The built package",
      duration: "seconds",
      run: () => nodeTests("tests/package"),
    },
    {
      title: "The crate, natively",
      duration: "about 12 minutes the first time, most of it compiling Burn",
      run: () => cargoTests(["test", "--release", "--", "--show-output"]),
    },
    ...browserSuites("", "several minutes", { CHROME_PATH: findChrome() ?? undefined }),
  ];
}

/**
 * What runs in a browser, again, on an adapter with f16, small bindings and larger subgroups. Only the results count
 * there, not how long they take.
 * @returns {Promise<Suite[]>}
 */
async function f16Suites() {
  const env = { CHROME_PATH: await f16Chrome(), HEARTH_ADAPTER: "f16", HEARTH_VERIFY: undefined };
  return browserSuites(", on the adapter with f16", "about 5 minutes, up to 20 the first time", env);
}

/**
 * @param {string} adapter For the titles.
 * @param {string} duration
 * @param {NodeJS.ProcessEnv} env
 * @returns {Suite[]}
 */
function browserSuites(adapter, duration, env) {
  return [
    {
      title: `The crate, in headless Chrome over WebGPU${adapter}`,
      duration,
      run: () =>
        cargoTests(["test", ...WASM_CARGO_OPTIONS, "--test", "web", "--", "--nocapture"], {
          CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER: `node ${root("scripts/wasm-test-runner.mjs")}`,
          CHROMEDRIVER: findChromedriver() ?? undefined,
          WASM_BINDGEN_TEST_TIMEOUT: String(BROWSER_TIMEOUT_S),
          ...env,
        }),
    },
    {
      title: `The page, from end to end${adapter}`,
      duration,
      run: () => nodeTests("tests/e2e", env),
    },
  ];
}

/** @param {{ withF16?: boolean }} [options] Whether what runs in a browser runs on a second adapter too, where there is one. */
export async function test({ withF16 = false } = {}) {
  await setup();
  await setupTests();
  await build();
  await fetchModel();

  /** @type {string[]} */
  const verdicts = [];
  let failed = false;
  let total = 0;
  for (const suite of [...suites(), ...(withF16 && HAS_F16_ADAPTER ? await f16Suites() : [])]) {
    step(`Tests: ${suite.title}`, suite.duration);
    const start = performance.now();
    const verdict = await suite.run().then(
      (passed) => {
        total += passed;
        return passed > 0 ? `✔ ${passed} passed` : "✖ ran no tests";
      },
      (error) => `✖ ${error.message}`,
    );
    failed ||= verdict.startsWith("✖");
    verdicts.push(`  ${suite.title}: ${verdict} (${Math.round((performance.now() - start) / 1000)} s)`);
  }
  console.log(`\n${verdicts.join("\n")}`);
  if (failed) throw new Failure("Not everything passed.");
  console.log(`\n${total} passed, 0 failed`);
}

/**
 * @param {string[]} args
 * @param {NodeJS.ProcessEnv} [env]
 */
function cargoTests(args, env) {
  return counted("cargo", args, /^test result: .*? (\d+) passed/gm, { cwd: root("crate"), env });
}

/**
 * @param {string} folder
 * @param {NodeJS.ProcessEnv} [env]
 */
function nodeTests(folder, env) {
  const files = readdirSync(root(folder))
    .filter((name) => name.endsWith(".test.mjs"))
    .map((name) => `${folder}/${name}`);
  const args = ["--test", "--test-reporter=spec", "--test-concurrency=1", ...files];
  return counted(process.execPath, args, /^\W*pass (\d+)$/gm, { env });
}

/**
 * @param {string} command
 * @param {string[]} args
 * @param {RegExp} passed Matches the lines that say how many tests passed.
 * @param {import("./lib/run.mjs").RunOptions} options
 * @returns {Promise<number>}
 */
async function counted(command, args, passed, options) {
  let output = "";
  await run(command, args, { ...options, onOutput: (text) => (output += text) });
  return [...output.matchAll(passed)].reduce((sum, [, count]) => sum + Number(count), 0);
}

if (isMain(import.meta.url)) await main(() => test());
