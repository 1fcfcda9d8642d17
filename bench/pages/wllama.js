/** wllama: llama.cpp as WebAssembly, on the CPU. */

import { publish } from "./common.js";

const LIBRARY = "/node_modules/@wllama/wllama/esm";

publish(async ({ model, threads }) => {
  const { Wllama } = await import(`${LIBRARY}/index.js`);
  const wllama = new Wllama({ default: `${LIBRARY}/wasm/wllama.wasm` }, { suppressNativeLog: true });
  const file = await (await fetch(model)).blob();
  await wllama.loadModel([file], {
    n_ctx: 1024,
    n_batch: 512,
    n_threads: threads,
    n_gpu_layers: 0,
    n_parallel: 1,
    warmup: false,
  });
  if (wllama.getNumThreads() !== threads) throw new Error(`it runs on ${wllama.getNumThreads()} threads`);

  return async (prompt, newTokens, onToken) => {
    const chunks = await wllama.createCompletion({
      prompt: prompt.text,
      max_tokens: newTokens,
      temperature: 0,
      top_k: 1,
      stream: true,
      cache_prompt: false,
      ignore_eos: true,
    });
    let text = "";
    for await (const { choices } of chunks) {
      const piece = choices[0].text ?? "";
      // The last chunk only says how it ended.
      if (piece === "" && choices[0].finish_reason) continue;
      onToken();
      text += piece;
    }
    return text;
  };
});
