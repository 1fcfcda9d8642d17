/** What the bench's pages share: one clock for all engines, so that they differ in nothing but the engine. */

/**
 * @typedef {object} Prompt
 * @property {string} name
 * @property {import("../../web/protocol.js").Message[]} messages
 * @property {string} text The messages in the model's chat template.
 * @property {number} tokens
 */

/**
 * @typedef {(prompt: Prompt, newTokens: number, onToken: () => void) => Promise<string>} Generate Writes the likeliest tokens after a
 *   prompt that nothing is kept of; gives the text.
 */

/** @typedef {{ options: any, prompts: Prompt[], newTokens: number }} Job */

/**
 * @typedef {object} Run How one prompt was answered.
 * @property {number} promptTokens
 * @property {number} newTokens
 * @property {number} firstTokenMs From the request to the first token.
 * @property {number} prefillTokensPerSecond
 * @property {number | null} decodeTokensPerSecond Null where there was only one token.
 * @property {string} text
 * @property {number} [agreement] How much of it is as in the reference: a part of one.
 */

/** @typedef {{ loadMs: number, warmUpMs: number, runs: Record<string, Run> }} Timings */

/** @type {Prompt} */
const WARM_UP = {
  name: "warm-up",
  messages: [{ role: "user", content: "Hi" }],
  text: "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
  tokens: 0,
};

/**
 * Gives the page its `run`, which the bench calls.
 * @param {(options: any) => Promise<Generate>} load Takes an engine from nothing to where it can answer.
 */
export function publish(load) {
  Object.assign(window, { run: (/** @type {Job} */ job) => run(load, job) });
}

/**
 * @param {(options: any) => Promise<Generate>} load
 * @param {Job} job
 * @returns {Promise<Timings>}
 */
async function run(load, { options, prompts, newTokens }) {
  const start = performance.now();
  const generate = await load(options);
  const loaded = performance.now();
  await generate(WARM_UP, 2, () => {});
  const warm = performance.now();
  /** @type {Record<string, Run>} */
  const runs = {};
  for (const prompt of prompts) runs[prompt.name] = await time(generate, prompt, newTokens);
  return { loadMs: loaded - start, warmUpMs: warm - loaded, runs };
}

/**
 * @param {Generate} generate
 * @param {Prompt} prompt
 * @param {number} newTokens
 * @returns {Promise<Run>}
 */
async function time(generate, prompt, newTokens) {
  /** @type {number[]} */
  const ticks = [];
  const start = performance.now();
  const text = await generate(prompt, newTokens, () => {
    ticks.push(performance.now());
    // Hearth's worker counts by itself.
    /** @type {any} */ (globalThis).webgpuCounter?.mark(ticks.length);
  });
  if (ticks.length === 0) throw new Error(`no token came for the prompt ${prompt.name}`);
  const firstTokenMs = ticks[0] - start;
  const decodeMs = ticks[ticks.length - 1] - ticks[0];
  return {
    promptTokens: prompt.tokens,
    newTokens: ticks.length,
    firstTokenMs,
    prefillTokensPerSecond: (1000 * prompt.tokens) / firstTokenMs,
    decodeTokensPerSecond: ticks.length > 1 ? (1000 * (ticks.length - 1)) / decodeMs : null,
    text,
  };
}
