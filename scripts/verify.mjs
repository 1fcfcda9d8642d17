/** `npm run verify`: everything, however long: the lints, and the tests with their long sets (`HEARTH_VERIFY=1`). */

import { main } from "./lib/run.mjs";
import { lint } from "./lint.mjs";
import { test } from "./test.mjs";

await main(async () => {
  process.env.HEARTH_VERIFY = "1";
  await test();
  await lint();
});
