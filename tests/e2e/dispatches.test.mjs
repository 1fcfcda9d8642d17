/**
 * What one token of an answer may ask of WebGPU. A small model's time goes into the launches and the way back to the
 * CPU, so these are kept to a budget: one submission, few dispatches, and a handful of bytes rather than all logits.
 */

import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { after, before, test } from "node:test";
import { countWebGpu, readCounts, tokenCosts } from "../../scripts/lib/counting.mjs";
import { root } from "../../scripts/lib/paths.mjs";
import { PATIENCE_MS, startBrowser, startSite, tinyModel } from "./support.mjs";

const NEW_TOKENS = 12;
/** The first tokens may still compile something. */
const FIRST_COUNTED = 3;
const MAX_SUBMITS = 1;
const maxDispatches = (/** @type {number} */ layers) => 7 * layers + 6;

const WAYS = [
  { way: "greedy", options: { temperature: 0 }, maxReadBytes: 4 },
  { way: "random", options: { temperature: 0.8, seed: 7 }, maxReadBytes: 4096 },
];

/** @type {string} */
let folder;
/** @type {Awaited<ReturnType<typeof startSite>>} */
let site;
/** @type {import("playwright-core").Browser} */
let browser;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "hearth-tiny-"));
  await writeFile(join(folder, "tiny.gguf"), await tinyModel());
  [site, browser] = await Promise.all([startSite({ tiny: folder }), startBrowser()]);
});

after(async () => {
  await browser?.close();
  site?.close();
  await rm(folder, { recursive: true });
});

test("counts what WebGPU is asked for", async () => {
  const page = await browser.newPage();
  try {
    await countWebGpu(page);
    await page.goto(site.url);
    await page.evaluate(async () => {
      const [MAP_READ, COPY_SRC, COPY_DST, STORAGE] = [1, 4, 8, 128];
      const adapter = /** @type {GPUAdapter} */ (await navigator.gpu.requestAdapter());
      const device = await adapter.requestDevice();
      const data = device.createBuffer({ size: 64, usage: STORAGE | COPY_SRC | COPY_DST });
      const other = device.createBuffer({ size: 64, usage: COPY_DST });
      const result = device.createBuffer({ size: 32, usage: MAP_READ | COPY_DST });
      const code = `@group(0) @binding(0) var<storage, read_write> data: array<u32>;
        @compute @workgroup_size(1) fn main() { data[0] += 1; }`;
      const module = device.createShaderModule({ code });
      const pipeline = device.createComputePipeline({ layout: "auto", compute: { module } });
      const bindings = device.createBindGroup({
        layout: pipeline.getBindGroupLayout(0),
        entries: [{ binding: 0, resource: { buffer: data } }],
      });
      device.queue.writeBuffer(data, 0, new Uint32Array([7, 8, 9]), 1);
      device.queue.writeBuffer(data, 4, new Uint32Array([7, 8, 9]), 1, 1);
      device.queue.writeBuffer(data, 8, new ArrayBuffer(16), 4);
      const encoder = device.createCommandEncoder();
      const pass = encoder.beginComputePass();
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, bindings);
      pass.dispatchWorkgroups(1);
      pass.dispatchWorkgroups(1);
      pass.end();
      encoder.copyBufferToBuffer(data, 0, other, 0, 64);
      encoder.copyBufferToBuffer(data, 0, result, 0, 8);
      device.queue.submit([encoder.finish()]);
      await result.mapAsync(MAP_READ, 0, 16);
      other.destroy();
      other.destroy();
    });
    const { counters } = await readCounts(page);
    assert.deepEqual(counters, {
      submits: 1,
      dispatches: 2,
      copies: 2,
      writes: 3,
      writtenBytes: 8 + 4 + 12,
      readBytes: 8,
      mappedBytes: 16,
      shaderModules: 1,
      pipelines: 1,
      buffers: 2,
      bufferBytes: 64 + 32,
      peakBufferBytes: 64 + 64 + 32,
    });
  } finally {
    await page.close();
  }
});

test("a token of the tiny checkpoint stays within its budget", async (context) => {
  const config = JSON.parse(await readFile(root("tests/fixtures/tiny/llama32/config.json"), "utf8"));
  await checkModel(context, "/tiny/tiny.gguf", config.num_hidden_layers);
});

// All logits of the tiny checkpoint would fit into what a random token may read back; here they would not.
test("a token of SmolLM2 stays within its budget", async (context) => {
  const [{ url }] = JSON.parse(await readFile(root("web/models.json"), "utf8"));
  await checkModel(context, `/models/${basename(url)}`, 30);
});

/**
 * @param {import("node:test").TestContext} context
 * @param {string} model Its address on the site.
 * @param {number} layers
 */
async function checkModel(context, model, layers) {
  const page = await browser.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  try {
    await countWebGpu(page);
    await page.goto(site.url);
    await page.evaluate(async (url) => {
      const { Hearth } = await import(String(new URL("/web/hearth.js", location.href)));
      Object.assign(globalThis, { hearth: await Hearth.load(url) });
    }, model);
    for (const { way, options, maxReadBytes } of WAYS) {
      await context.test(way, async (context) => {
        const costs = await answer(page, { ...options, max_tokens: NEW_TOKENS });
        context.diagnostic(`each token: ${summary(costs)}`);
        assert.ok(costs.length >= 4, `only ${costs.length} tokens were counted: the answer ended too early`);
        const limits = { submits: MAX_SUBMITS, dispatches: maxDispatches(layers), readBytes: maxReadBytes };
        assert.deepEqual(overBudget(costs, limits), [], `beyond the budget of a token with ${layers} layers`);
        const submits = new Set(costs.map(({ counters }) => counters.submits));
        assert.deepEqual([...submits], [1], "how many submissions a token takes");
      });
    }
  } finally {
    await page.close();
  }
}

/**
 * Has a question answered from scratch, and tells what each token took from the third on.
 * @param {import("playwright-core").Page} page
 * @param {import("../../web/protocol.js").ChatOptions} options
 */
async function answer(page, options) {
  const earlier = (await readCounts(page)).marks.length;
  await page.evaluate(async (options) => {
    const { hearth } = /** @type {{ hearth: import("../../web/hearth.js").Hearth }} */ (
      /** @type {unknown} */ (globalThis)
    );
    await hearth.reset();
    await hearth.chat([{ role: "user", content: "Tell me a long story about the sea." }], options).result;
  }, options);
  const { marks } = await readCounts(page);
  return tokenCosts(marks.slice(earlier)).filter(({ tokens }) => tokens >= FIRST_COUNTED);
}

/** @typedef {ReturnType<typeof tokenCosts>} Costs */

/**
 * One line for each kind of thing that some token took too many of.
 * @param {Costs} costs
 * @param {Partial<import("../../scripts/lib/counting.mjs").Counters>} limits
 */
function overBudget(costs, limits) {
  return Object.entries(limits).flatMap(([name, limit]) => {
    const what = /** @type {keyof typeof limits} */ (name);
    const worst = costs.reduce((a, b) => (b.counters[what] > a.counters[what] ? b : a));
    if (worst.counters[what] <= limit) return [];
    return [`${what}: ${worst.counters[what]} for token ${worst.tokens}, at most ${limit} are allowed`];
  });
}

/** What the tokens took: where they differ, all the values that there were. @param {Costs} costs */
function summary(costs) {
  const names = /** @type {(keyof Costs[0]["counters"])[]} */ (Object.keys(costs[0]?.counters ?? {}));
  return names
    .map((name) => `${[...new Set(costs.map(({ counters }) => counters[name]))].join(" or ")} ${name}`)
    .filter((line) => !line.startsWith("0 "))
    .join(", ");
}
