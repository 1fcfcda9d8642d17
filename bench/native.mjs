/** Runs llama.cpp outside a browser, by way of llama-cpp-python. */

import { spawn } from "node:child_process";
import { root } from "../scripts/lib/paths.mjs";
import { llamaCppPython } from "./rivals.mjs";

/**
 * @param {{ model: string, threads: number, prompts: import("./prompts.mjs").Prompt[], newTokens: number }} job
 * @returns {Promise<import("./table.mjs").Measurement>}
 */
export async function runNatively(job) {
  const env = { ...process.env, OMP_NUM_THREADS: String(job.threads) };
  const child = spawn(llamaCppPython(), [root("bench/python/llama_cpp_row.py")], { env });
  child.stdin.end(JSON.stringify(job));
  let [output, complaints] = ["", ""];
  child.stdout.setEncoding("utf8").on("data", (text) => (output += text));
  child.stderr.setEncoding("utf8").on("data", (text) => (complaints += text));
  const code = await new Promise((resolve, reject) => child.on("error", reject).on("close", resolve));
  if (code !== 0) throw new Error(complaints.trim().split("\n").at(-1) || `llama.cpp ended with exit code ${code}`);
  const { peakBytes, ...timings } = JSON.parse(output);
  return { ...timings, memory: { main: peakBytes, gpu: null } };
}
