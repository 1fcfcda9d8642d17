/** `npm start`: from a fresh clone to a page that can be opened. What is there already is not done again. */

import { build } from "./build.mjs";
import { main } from "./lib/run.mjs";
import { fetchModel } from "./model.mjs";
import { serveFromCommandLine } from "./serve.mjs";
import { setup } from "./setup.mjs";

await main(async () => {
  await setup();
  await build();
  await fetchModel();
  await serveFromCommandLine();
});
