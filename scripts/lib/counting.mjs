/** Has `webgpu-counter.mjs` count in a page or in the engine's worker, and tells what single tokens took. */

import { readFile } from "node:fs/promises";
import { root } from "./paths.mjs";

/** @typedef {import("./webgpu-counter.mjs").Counters} Counters */
/** @typedef {import("./webgpu-counter.mjs").Mark} Mark */

const COUNTER = root("scripts/lib/webgpu-counter.mjs");

/**
 * Counts in every worker that this page starts from web/worker.js, and in the page itself.
 * @param {import("playwright-core").Page} page Before it goes anywhere.
 */
export async function countWebGpu(page) {
  const counter = await readFile(COUNTER, "utf8");
  await page.addInitScript(counter);
  await page.route("**/web/worker.js", async (route) => {
    const response = await route.fetch({ headers: { ...route.request().headers(), "if-none-match": "" } });
    // A module's imports are evaluated first wherever they stand. None of the worker's touches WebGPU by then.
    await route.fulfill({ response, body: `${counter}\n${await response.text()}` });
  });
}

/**
 * What has been counted in the page, or in its worker where it has one.
 * @param {import("playwright-core").Page} page
 * @returns {Promise<{ counters: Counters, marks: Mark[] }>}
 */
export async function readCounts(page) {
  const worker = page.workers().find((worker) => new URL(worker.url()).pathname.endsWith("/web/worker.js"));
  const read = () => {
    const { counters, marks } = /** @type {any} */ (globalThis).webgpuCounter;
    return { counters, marks };
  };
  return worker ? worker.evaluate(read) : page.evaluate(read);
}

/**
 * What each token took after the first, in the order of the marks. Where the number of tokens does not go up by one, another answer
 * begins.
 * @param {Mark[]} marks
 * @returns {{ tokens: number, ms: number, counters: Counters }[]}
 */
export function tokenCosts(marks) {
  return marks.slice(1).flatMap(({ tokens, at, counters }, index) => {
    const before = marks[index];
    if (tokens !== before.tokens + 1) return [];
    return [{ tokens, ms: at - before.at, counters: difference(counters, before.counters) }];
  });
}

/**
 * @param {Counters} after
 * @param {Counters} before
 */
function difference(after, before) {
  const names = /** @type {(keyof Counters)[]} */ (Object.keys(after));
  return /** @type {Counters} */ (Object.fromEntries(names.map((name) => [name, after[name] - before[name]])));
}
