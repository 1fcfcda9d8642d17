/** Puts the page into dist/ as a static site that works under any address: index.html, web/, pkg/ and the model. */

import { cp, mkdir, rm } from "node:fs/promises";
import { basename } from "node:path";
import { build } from "./build.mjs";
import { isMain, root } from "./lib/paths.mjs";
import { main } from "./lib/run.mjs";
import { fetchModel } from "./model.mjs";

/** @param {string} folder Is replaced. */
export async function dist(folder) {
  await rm(folder, { recursive: true, force: true });
  await mkdir(`${folder}/models`, { recursive: true });
  const except = [root("web/index.html"), root("web/tsconfig.json"), root("pkg/build.json")];
  const filter = (/** @type {string} */ path) => !except.includes(path) && !path.endsWith(".d.ts");
  for (const part of ["web", "pkg"]) await cp(root(part), `${folder}/${part}`, { recursive: true, filter });
  await cp(root("web/index.html"), `${folder}/index.html`);
}

if (isMain(import.meta.url)) {
  await main(async () => {
    await build();
    const model = await fetchModel();
    await dist(root("dist"));
    await cp(model, root("dist/models", basename(model)));
    console.log("\nThe site is in dist/: any static server will do.");
  });
}
