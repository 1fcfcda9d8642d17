/** On which adapter the other tests here run: a repetition on a second one must not be a repetition on the first. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startBrowser, startSite } from "./support.mjs";

/** Adapters with a name, and how they differ from the usual one. Where there is no name, any will do. */
const ADAPTERS = { f16: { hasF16: true, maxBindingBytes: 128 * 1024 * 1024 } };

/** @type {Awaited<ReturnType<typeof startSite>>} */
let site;
/** @type {import("playwright-core").Browser} */
let browser;

before(async () => {
  [site, browser] = await Promise.all([startSite(), startBrowser()]);
});

after(async () => {
  await browser?.close();
  site?.close();
});

test("the adapter is the one that was asked for", async (context) => {
  const page = await browser.newPage();
  await page.goto(site.url);
  const adapter = await page.evaluate(async () => {
    const adapter = /** @type {GPUAdapter} */ (await navigator.gpu.requestAdapter());
    return {
      hasF16: adapter.features.has("shader-f16"),
      maxBindingBytes: adapter.limits.maxStorageBufferBindingSize,
    };
  });
  context.diagnostic(JSON.stringify(adapter));
  const name = process.env.HEARTH_ADAPTER;
  if (name !== undefined) assert.deepEqual(adapter, ADAPTERS[/** @type {keyof typeof ADAPTERS} */ (name)]);
});
