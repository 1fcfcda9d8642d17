/**
 * `npm run verify`: everything, however long: the lints, and the tests with their long sets and their limits on timings
 * (`HEARTH_VERIFY=1`), and those that run in a browser on a second adapter as well.
 */

import { main } from "./lib/run.mjs";
import { lint } from "./lint.mjs";
import { test } from "./test.mjs";

await main(async () => {
  process.env.HEARTH_VERIFY = "1";
  await test({ withF16: true });
  await lint();
});
