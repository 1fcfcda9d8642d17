/**
 * Runs wasm-bindgen-test-runner, as cargo calls it, with the checkout as its folder rather than the crate, so that its test server gives the browser
 * the model under models/.
 */

import { spawnSync } from "node:child_process";
import { root } from "./lib/paths.mjs";

const { status, error } = spawnSync("wasm-bindgen-test-runner", process.argv.slice(2), {
  cwd: root(),
  stdio: "inherit",
  env: { ...process.env, WASM_BINDGEN_TEST_WEBDRIVER_JSON: root("crate/webdriver.json") },
});
if (error) console.error(`wasm-bindgen-test-runner: ${error.message}; \`npm run setup\` installs it`);
process.exit(status ?? 1);
