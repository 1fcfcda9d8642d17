/** The prompts that every engine is given, with what transformers answers in float32. */

import { readFile } from "node:fs/promises";
import { root } from "../scripts/lib/paths.mjs";

/** The names of the short one (44 tokens) and of the long one (523). */
export const SHORT = "ocean";
export const LONG = "long_summary";

/** @typedef {import("./pages/common.js").Prompt & { ids: number[], reference: string }} Prompt */

/** @returns {Promise<Map<string, Prompt>>} By name. */
export async function readPrompts() {
  const { prompts } = JSON.parse(await readFile(root("tests/fixtures/smollm2/hf_f32.json"), "utf8"));
  return new Map(
    prompts
      .filter((/** @type {any} */ { name }) => [SHORT, LONG].includes(name))
      .map((/** @type {any} */ prompt) => [
        prompt.name,
        {
          name: prompt.name,
          messages: prompt.messages,
          text: prompt.prompt_text,
          tokens: prompt.n_prompt,
          ids: prompt.prompt_ids,
          reference: prompt.greedy_text,
        },
      ]),
  );
}
