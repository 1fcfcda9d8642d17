/**
 * Runs wasm-bindgen-test-runner, as cargo calls it, in the browser that `CHROME_PATH` names or the one that chromedriver
 * finds. The checkout is its folder rather than the crate, so that its test server gives the browser the model under
 * models/.
 */

import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { QUIET, SOFTWARE_WEBGPU } from "./lib/browser.mjs";
import { root } from "./lib/paths.mjs";

const folder = mkdtempSync(join(tmpdir(), "hearth-webdriver-"));
const capabilities = join(folder, "webdriver.json");
const options = { args: ["--headless=new", ...QUIET, ...SOFTWARE_WEBGPU], binary: process.env.CHROME_PATH };
writeFileSync(capabilities, JSON.stringify({ "goog:chromeOptions": options }));

const { status, error } = spawnSync("wasm-bindgen-test-runner", process.argv.slice(2), {
  cwd: root(),
  stdio: "inherit",
  env: { ...process.env, WASM_BINDGEN_TEST_WEBDRIVER_JSON: capabilities },
});
rmSync(folder, { recursive: true });
if (error) console.error(`wasm-bindgen-test-runner: ${error.message}; \`npm run setup\` installs it`);
process.exit(status ?? 1);
