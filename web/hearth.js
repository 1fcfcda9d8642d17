/**
 * hearth-lm: a Llama-family language model in this browser tab.
 *
 *     import { Hearth } from "hearth-lm";
 *
 *     const hearth = await Hearth.load("https://example.org/model.gguf", { onProgress: console.log });
 *     const answer = hearth.chat([{ role: "user", content: "Why is the sky blue?" }]);
 *     for await (const { text } of answer) document.body.append(text);
 *     const { usage, timings } = await answer.result;
 *
 * Each `Hearth` has a worker of its own. Every rejection is a `HearthError` with a stable `code`.
 */

import { WorkerClient } from "./client.js";
import { HearthError } from "./protocol.js";

export { HearthError };

/** @typedef {(progress: { done: number, total: number }) => void} OnPrefill */

/**
 * Why this browser cannot run Hearth, or null where it can. Downloads nothing.
 * @returns {Promise<HearthError | null>}
 */
export async function checkWebGpu() {
  const gpu = globalThis.navigator?.gpu;
  if (!gpu) {
    const reason = globalThis.isSecureContext
      ? "This browser has no WebGPU. Use a current Chrome, Edge, Safari or Firefox."
      : "WebGPU needs a secure page: open this one over https or on localhost.";
    return new HearthError("webgpu_unavailable", reason);
  }
  const adapter = await gpu.requestAdapter().catch(() => null);
  if (adapter) return null;
  return new HearthError(
    "webgpu_unavailable",
    "This browser has WebGPU but found no graphics adapter for it. Switch hardware acceleration on in its settings, or update the graphics driver.",
  );
}

export class Hearth {
  #client;

  /**
   * @param {WorkerClient} client
   * @param {import("./protocol.js").LoadResult} loaded
   */
  constructor(client, { model, device }) {
    this.#client = client;
    /** What was loaded. */
    this.model = model;
    /** What it runs on. */
    this.device = device;
    /** Resolves with the reason if the engine dies; load a new one then. It never rejects. */
    this.lost = client.lost;
  }

  /**
   * Opens the device, then streams a GGUF file onto it.
   * @param {string | URL | Blob | { url: string | URL, bytes?: number }} model Where it is: an address, a file, or an address with its size.
   * @param {{ onProgress?: (progress: import("./protocol.js").LoadProgress) => void, signal?: AbortSignal }} [options]
   * @returns {Promise<Hearth>}
   */
  static async load(model, { onProgress, signal } = {}) {
    const unsupported = await checkWebGpu();
    if (unsupported) throw unsupported;
    if (signal?.aborted) throw cancelled();
    const client = new WorkerClient();
    const abort = () => client.close(cancelled());
    signal?.addEventListener("abort", abort);
    try {
      return new Hearth(client, await client.call("load", sourceOf(model), onProgress));
    } catch (error) {
      client.close();
      throw error;
    } finally {
      signal?.removeEventListener("abort", abort);
    }
  }

  /**
   * Answers a conversation whose last message is the user's. Messages that begin like those of the call before are
   * not computed again. `onPrefill` hears how many of the conversation's tokens have been read; the answer begins when
   * all have.
   * @param {import("./protocol.js").Message[]} messages
   * @param {import("./protocol.js").ChatOptions & { signal?: AbortSignal, onPrefill?: OnPrefill }} [options]
   * @returns {Answer}
   */
  chat(messages, { signal, onPrefill, ...options } = {}) {
    const [seed] = crypto.getRandomValues(new Uint32Array(1));
    return new Answer(this.#client, { seed, ...options, messages, now: localSeconds() }, signal, onPrefill);
  }

  /** Forgets the conversation. */
  async reset() {
    await this.#client.call("reset");
  }

  /** Frees everything at once. */
  close() {
    this.#client.close();
  }
}

/** An answer as it is written: iterate it for its pieces, or await `result` for how it ended. */
export class Answer {
  #client;
  /** @type {import("./protocol.js").Delta[]} */
  #pieces = [];
  #settled = false;
  #wake = () => {};

  /**
   * @param {WorkerClient} client
   * @param {import("./protocol.js").ChatRequest} request
   * @param {AbortSignal} [signal]
   * @param {OnPrefill} [onPrefill]
   */
  constructor(client, request, signal, onPrefill) {
    this.#client = client;
    const cancel = () => this.cancel();
    /** @type {Promise<import("./protocol.js").ChatResult>} */
    this.result = client
      .call("chat", request, (event) => {
        if (event.prefill) return onPrefill?.(event.prefill);
        this.#pieces.push(event);
        this.#wake();
      })
      .finally(() => {
        this.#settled = true;
        signal?.removeEventListener("abort", cancel);
        this.#wake();
      });
    // Whoever iterates gets the error there; it must not count as unhandled here as well.
    this.result.catch(() => {});
    signal?.addEventListener("abort", cancel);
    if (signal?.aborted) this.cancel();
  }

  /** Ends the answer within a token; `result` then says `cancelled`. */
  cancel() {
    if (!this.#settled) this.#client.call("cancel").catch(() => {});
  }

  /** @returns {AsyncGenerator<import("./protocol.js").Delta, void, void>} */
  async *[Symbol.asyncIterator]() {
    try {
      for (;;) {
        while (this.#pieces.length) yield /** @type {import("./protocol.js").Delta} */ (this.#pieces.shift());
        if (this.#settled) break;
        await new Promise((resolve) => (this.#wake = () => resolve(undefined)));
      }
      await this.result;
    } finally {
      this.cancel();
    }
  }
}

/**
 * @param {string | URL | Blob | { url: string | URL, bytes?: number }} model
 * @returns {import("./protocol.js").ModelSource}
 */
function sourceOf(model) {
  if (model instanceof Blob) return { file: model };
  const { url, bytes } = typeof model === "string" || model instanceof URL ? { url: model } : model;
  return { url: new URL(url, globalThis.document?.baseURI ?? globalThis.location.href).href, bytes };
}

/** The local time as seconds since 1970-01-01 00:00 local time: templates tell the model what day it is. */
function localSeconds() {
  return Math.floor(Date.now() / 1000) - new Date().getTimezoneOffset() * 60;
}

function cancelled() {
  return new HearthError("cancelled", "Loading was stopped.");
}
