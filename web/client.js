/**
 * The page's end of the worker: calls that return promises, and a worker whose death is noticed.
 */

import { HearthError } from "./protocol.js";

/** @typedef {{ resolve: (value: any) => void, reject: (error: Error) => void, onEvent?: (event: any) => void }} Call */

export class WorkerClient {
  /** @type {Map<number, Call>} */
  #calls = new Map();
  #nextId = 1;
  #worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module", name: "hearth" });
  /** @type {HearthError | undefined} */
  #ended;
  /** @type {(error: HearthError) => void} */
  #reportLoss = () => {};

  constructor() {
    /** Resolves when the worker died by itself; never after `close()`. @type {Promise<HearthError>} */
    this.lost = new Promise((resolve) => (this.#reportLoss = resolve));
    this.#worker.addEventListener("message", ({ data }) => this.#receive(data));
    this.#worker.addEventListener("messageerror", () => this.#die("a message could not be read"));
    this.#worker.addEventListener("error", (event) => {
      event.preventDefault();
      this.#die(event.message || "its script could not be started");
    });
  }

  /**
   * @template {import("./protocol.js").Request["method"]} M
   * @param {M} method
   * @param {Extract<import("./protocol.js").Request, { method: M }>["params"]} [params]
   * @param {(event: any) => void} [onEvent]
   * @returns {Promise<any>}
   */
  call(method, params, onEvent) {
    return new Promise((resolve, reject) => {
      if (this.#ended) return reject(this.#ended);
      const id = this.#nextId++;
      this.#calls.set(id, { resolve, reject, onEvent });
      this.#worker.postMessage({ id, method, params });
    });
  }

  /**
   * Ends the worker at once, with all the memory and device memory it holds. What is still open fails with `reason`.
   * @param {HearthError} [reason]
   */
  close(reason = new HearthError("cancelled", "The engine was closed.")) {
    if (this.#ended) return;
    this.#ended = reason;
    this.#worker.terminate();
    for (const { reject } of this.#calls.values()) reject(reason);
    this.#calls.clear();
  }

  /** @param {import("./protocol.js").Reply} reply */
  #receive(reply) {
    if (reply.type === "crash") return this.#die(reply.message);
    const call = this.#calls.get(reply.id);
    if (!call) return;
    if (reply.type === "event") return call.onEvent?.(reply.event);
    this.#calls.delete(reply.id);
    if (reply.type === "result") call.resolve(reply.value);
    else call.reject(new HearthError(reply.error.code, reply.error.message));
  }

  /** @param {string} what */
  #die(what) {
    if (this.#ended) return;
    const error = new HearthError("worker_failed", `The engine stopped: ${what}. Load the model again.`);
    this.close(error);
    this.#reportLoss(error);
  }
}
