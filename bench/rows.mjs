/** The rows of the table: which engine runs how, on what. */

import { basename } from "node:path";
import { runPage } from "./browser.mjs";
import { runNatively } from "./native.mjs";
import { LONG, SHORT } from "./prompts.mjs";

/**
 * @typedef {object} Row
 * @property {string} name
 * @property {import("./rivals.mjs").Need[]} needs
 * @property {string[]} prompts Names.
 * @property {number} newTokens Fewer where a token takes seconds.
 * @property {(context: Context) => Promise<import("./table.mjs").Measurement>} run
 */

/**
 * @typedef {object} Context
 * @property {string} model The path of the GGUF file.
 * @property {string} site The address of the server that the pages come from.
 * @property {import("./prompts.mjs").Prompt[]} prompts The row's.
 * @property {number} newTokens The row's.
 */

const NEW_TOKENS = 48;

/** @type {Row[]} */
export const ROWS = [
  onPage({
    name: "Hearth, WebGPU (software adapter), Q4_1",
    page: "hearth",
    options: {},
    newTokens: 16,
  }),
  ...[1, 2].map((threads) => natively({ name: `llama.cpp, native, ${count(threads)}, Q4_1`, threads })),
  ...[1, 2].map((threads) =>
    onPage({
      name: `wllama, wasm, ${count(threads)}, Q4_1`,
      needs: ["npm"],
      page: "wllama",
      options: { threads },
    }),
  ),
  onPage({
    name: "transformers.js, wasm, 1 thread, q8",
    needs: ["npm", "onnx"],
    page: "transformers",
    options: { model: "q8", device: "wasm", dtype: "q8", threads: 1 },
  }),
  onPage({
    name: "transformers.js, WebGPU (software adapter), q4",
    needs: ["npm", "onnx"],
    page: "transformers",
    options: { model: "q4", device: "webgpu", dtype: "q4" },
    prompts: [SHORT],
    newTokens: 4,
  }),
];

/**
 * @param {{ name: string, page: string, options: object } & Partial<Row>} row
 * @returns {Row}
 */
function onPage({ page, options, ...row }) {
  return {
    needs: [],
    prompts: [SHORT, LONG],
    newTokens: NEW_TOKENS,
    run: ({ model, site, prompts, newTokens }) =>
      runPage(`${site}/bench/pages/${page}.html`, {
        options: { model: `/models/${basename(model)}`, ...options },
        prompts,
        newTokens,
      }),
    ...row,
  };
}

/**
 * @param {{ name: string, threads: number }} row
 * @returns {Row}
 */
function natively({ name, threads }) {
  return {
    name,
    needs: ["llama.cpp"],
    prompts: [SHORT, LONG],
    newTokens: NEW_TOKENS,
    run: ({ model, prompts, newTokens }) => runNatively({ model, threads, prompts, newTokens }),
  };
}

/** @param {number} threads */
function count(threads) {
  return threads === 1 ? "1 thread" : `${threads} threads`;
}
