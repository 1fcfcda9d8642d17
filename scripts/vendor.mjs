/**
 * Copies the page's two libraries out of node_modules, so that it needs no bundler: their ES modules, their types and
 * their licences go to web/vendor/ (not in git). npm runs this after every install.
 */

import { cp, mkdir, readFile, writeFile } from "node:fs/promises";
import { root } from "./lib/paths.mjs";

const LIBRARIES = [
  { name: "marked", folder: "marked", module: "lib/marked.esm.js", types: "lib/marked.d.ts" },
  { name: "purify", folder: "dompurify", module: "dist/purify.es.mjs", types: "dist/purify.es.d.mts" },
];

await mkdir(root("web/vendor"), { recursive: true });
for (const { name, folder, module, types } of LIBRARIES) {
  const from = (/** @type {string} */ file) => root("node_modules", folder, file);
  const code = await readFile(from(module), "utf8");
  await writeFile(root(`web/vendor/${name}.js`), code.replace(/\n\/\/# sourceMappingURL=.*/, ""));
  await cp(from(types), root(`web/vendor/${name}.d.ts`));
  await cp(from("LICENSE"), root(`web/vendor/${name}.LICENSE.txt`));
}
