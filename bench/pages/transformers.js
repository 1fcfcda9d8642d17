/** transformers.js: onnxruntime-web, on the CPU (WebAssembly) or on WebGPU. */

import { publish } from "./common.js";

publish(async ({ model, device, dtype, threads }) => {
  const { env, AutoTokenizer, AutoModelForCausalLM } = await import(
    String(new URL("/node_modules/@huggingface/transformers/dist/transformers.js", location.href))
  );
  Object.assign(env, {
    allowRemoteModels: false,
    allowLocalModels: true,
    localModelPath: "/onnx/",
    useBrowserCache: false,
    useWasmCache: false,
  });
  env.backends.onnx.wasm.wasmPaths = "/node_modules/onnxruntime-web/dist/";
  if (threads) env.backends.onnx.wasm.numThreads = threads;
  const tokenizer = await AutoTokenizer.from_pretrained(model);
  const language = await AutoModelForCausalLM.from_pretrained(model, {
    device,
    dtype,
    use_external_data_format: false,
  });

  return async (prompt, newTokens, onToken) => {
    const inputs = tokenizer(prompt.text, { add_special_tokens: false });
    const promptTokens = inputs.input_ids.dims[1];
    if (prompt.tokens && promptTokens !== prompt.tokens) {
      throw new Error(`the prompt ${prompt.name} became ${promptTokens} tokens, not ${prompt.tokens}`);
    }
    // The streamer is given the prompt first.
    let isPrompt = true;
    const streamer = {
      put() {
        if (!isPrompt) onToken();
        isPrompt = false;
      },
      end() {},
    };
    const output = await language.generate({
      ...inputs,
      max_new_tokens: newTokens,
      min_new_tokens: newTokens,
      do_sample: false,
      streamer,
    });
    return tokenizer.decode(output.tolist()[0].slice(promptTokens).map(Number));
  };
});
