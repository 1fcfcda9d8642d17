/** Runs one of the bench's pages in a browser of its own, and watches from outside: memory, WebGPU, WebAssembly. */

import { readFile } from "node:fs/promises";
import { chromium } from "playwright-core";
import { QUIET, SOFTWARE_WEBGPU, findChrome } from "../scripts/lib/browser.mjs";
import { countWebGpu, readCounts, tokenCosts } from "../scripts/lib/counting.mjs";
import { Failure } from "../scripts/lib/run.mjs";
import { median } from "./table.mjs";

const PATIENCE_MS = 900_000;
/** The first tokens may still compile something. */
const FIRST_COUNTED = 3;

/**
 * @param {string} url
 * @param {import("./pages/common.js").Job} job
 * @returns {Promise<import("./table.mjs").Measurement>}
 */
export async function runPage(url, job) {
  const executablePath = findChrome();
  if (!executablePath) throw new Failure("there is no Chrome or Chromium: set CHROME_PATH");
  const browser = await chromium.launch({ executablePath, args: [...QUIET, ...SOFTWARE_WEBGPU] });
  try {
    const page = await browser.newPage();
    /** @type {Set<string>} */
    const wasm = new Set();
    page.context().on("response", (response) => {
      if (new URL(response.url()).pathname.endsWith(".wasm")) wasm.add(response.url());
    });
    await countWebGpu(page);
    await page.goto(url);
    const timings = await within(
      PATIENCE_MS,
      page.evaluate((job) => /** @type {any} */ (window).run(job), job),
    );
    const { counters, marks } = await readCounts(page);
    return {
      ...timings,
      device: counters.dispatches === 0 ? null : { bytes: counters.bufferBytes, peakBytes: counters.peakBufferBytes },
      token: typicalToken(marks),
      memory: await peakMemory(browser),
      browser: browser.version(),
      wasm: [...wasm].map((address) => new URL(address).pathname),
    };
  } finally {
    await browser.close();
  }
}

/** What a token takes once everything is compiled. @param {import("../scripts/lib/counting.mjs").Mark[]} marks */
function typicalToken(marks) {
  const costs = tokenCosts(marks).filter(({ tokens, counters }) => tokens >= FIRST_COUNTED && counters.dispatches > 0);
  if (costs.length === 0) return null;
  const typical = (/** @type {keyof typeof costs[0]["counters"]} */ name) =>
    /** @type {number} */ (median(costs.map(({ counters }) => counters[name])));
  return {
    dispatches: typical("dispatches"),
    submits: typical("submits"),
    writes: typical("writes"),
    readBytes: typical("readBytes"),
  };
}

/**
 * The most that the page's process and the one for graphics had in memory; null where the system does not tell.
 * @param {import("playwright-core").Browser} browser
 */
async function peakMemory(browser) {
  const session = await browser.newBrowserCDPSession();
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  const peaks = async (/** @type {string} */ type) =>
    Promise.all(processInfo.filter((process) => process.type === type).map(({ id }) => peakOfProcess(id)));
  const largest = (/** @type {(number | null)[]} */ values) =>
    values.reduce((a, b) => (a === null || (b !== null && b > a) ? b : a), null);
  return { main: largest(await peaks("renderer")), gpu: largest(await peaks("GPU")) };
}

/** @param {number} id */
async function peakOfProcess(id) {
  const status = await readFile(`/proc/${id}/status`, "utf8").catch(() => "");
  const kilobytes = /^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1];
  return kilobytes === undefined ? null : Number(kilobytes) * 1024;
}

/**
 * @template T
 * @param {number} ms
 * @param {Promise<T>} promise
 * @returns {Promise<T>}
 */
function within(ms, promise) {
  /** @type {NodeJS.Timeout} */
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`it was not done after ${ms / 60_000} minutes`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
