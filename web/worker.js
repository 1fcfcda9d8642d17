/**
 * The worker that holds the engine, so that nothing the model does can stall the page. It speaks `protocol.js`.
 */

import init, { Engine } from "../pkg/hearth.js";
import { readModel } from "./download.js";
import { HearthError, describeError } from "./protocol.js";
import { batchSubmissions } from "./submissions.js";

/** @type {Promise<Engine> | undefined} */
let opening;
/** @type {Engine | undefined} */
let engine;

self.addEventListener("message", (/** @type {MessageEvent<import("./protocol.js").Request>} */ { data: request }) => {
  const { id } = request;
  answer(request, (event) => post({ type: "event", id, event })).then(
    (value) => post({ type: "result", id, value }),
    (error) => (isCrash(error) ? crash(error) : post({ type: "error", id, error: describeError(error) })),
  );
});

// What a trap inside the engine leaves behind is not usable any more, and the call it happened in never settles.
self.addEventListener("unhandledrejection", ({ reason }) => crash(reason));

/**
 * @param {import("./protocol.js").Request} request
 * @param {(event: any) => void} emit
 */
async function answer(request, emit) {
  switch (request.method) {
    case "load":
      return load(request.params, emit);
    case "chat":
      return loaded().chat(
        request.params,
        (/** @type {string} */ text, /** @type {number} */ tokens) => emit({ text, tokens }),
        (/** @type {number} */ done, /** @type {number} */ total) => emit({ prefill: { done, total } }),
      );
    case "cancel":
      return loaded().cancel();
    case "reset":
      return loaded().reset();
  }
}

/**
 * Opens the device before the first byte is asked for: where there is no WebGPU, nothing is downloaded.
 * @param {import("./protocol.js").ModelSource} source
 * @param {(progress: import("./protocol.js").LoadProgress) => void} emit
 * @returns {Promise<import("./protocol.js").LoadResult>}
 */
async function load(source, emit) {
  batchSubmissions();
  opening ??= init().then(() => Engine.open());
  engine = await opening;
  const loader = engine.startLoad();
  for await (const chunk of readModel(source, emit)) await loader.push(chunk);
  const model = await loader.finish(
    (/** @type {string} */ phase, /** @type {number} */ done, /** @type {number} */ total) =>
      emit({ phase, done, total }),
  );
  return { model, device: { ...engine.info, adapter: await adapterName() } };
}

/** What the browser calls the graphics adapter that it offers first, which is the one that the engine takes. */
async function adapterName() {
  const info = (await navigator.gpu.requestAdapter().catch(() => null))?.info;
  return info?.description || [info?.vendor, info?.architecture].filter(Boolean).join(" ");
}

function loaded() {
  if (!engine) throw new HearthError("no_model", "No model is loaded: load one first.");
  return engine;
}

/** @param {import("./protocol.js").Reply} reply */
function post(reply) {
  self.postMessage(reply);
}

/** @param {unknown} error */
function isCrash(error) {
  return error instanceof WebAssembly.RuntimeError;
}

/** @param {unknown} error */
function crash(error) {
  post({ type: "crash", message: describeError(error).message });
}
