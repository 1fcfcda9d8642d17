/**
 * What the page and the worker say to each other, and the one error type that both use.
 *
 * The page sends a `Request`. The worker answers it with any number of `event` replies, then exactly one `result` or
 * `error` with the same id. A `crash` has no id: it ends the worker and everything that is still open.
 */

/**
 * @typedef {object} Message One turn of a conversation.
 * @property {"system" | "user" | "assistant"} role
 * @property {string} content
 */

/**
 * @typedef {object} ChatOptions What the sampler may do. Everything left out takes the engine's default.
 * @property {number} [temperature] 0 always takes the likeliest token.
 * @property {number} [top_k] Keep this many tokens; 0 keeps all.
 * @property {number} [top_p] Keep the likeliest tokens that together have this probability, in (0, 1].
 * @property {number} [min_p] Keep tokens at least this likely relative to the likeliest one, in [0, 1].
 * @property {number} [repetition_penalty] Divides the logits of tokens already seen; 1 does nothing.
 * @property {number} [seed] The same seed gives the same answer; without one, every answer is another.
 * @property {number} [max_tokens] Ends the answer after this many tokens.
 * @property {string[]} [stop] Ends the answer before any of these strings.
 */

/** @typedef {ChatOptions & { messages: Message[], now: number }} ChatRequest `now` is the local time in seconds. */

/**
 * @typedef {object} Delta A piece of an answer as it arrives.
 * @property {string} text What to append; whole characters only.
 * @property {number} tokens How many tokens have been generated so far.
 */

/**
 * @typedef {object} ChatResult How an answer ended.
 * @property {"stop" | "length" | "cancelled"} finish_reason
 * @property {{ prompt_tokens: number, completion_tokens: number, cached_tokens: number }} usage
 * @property {{ time_to_first_token_ms: number, prefill_tokens_per_second: number, decode_tokens_per_second: number }} timings
 */

/**
 * @typedef {object} LoadProgress How far a load is. `done` and `total` are bytes while `phase` is "downloading" or
 *   "reading", and steps in the later phases.
 * @property {string} phase "downloading" or "reading" (a local file), then whatever phases the engine names.
 * @property {number} done
 * @property {number | null} total Null while it is not known.
 * @property {number} [bytesPerSecond] Over the last seconds.
 * @property {number | null} [secondsLeft] At that speed.
 */

/**
 * @typedef {object} ModelInfo
 * @property {string} name
 * @property {string} architecture
 * @property {number} parameters
 * @property {number} contextLength In tokens.
 * @property {number} deviceBytes What the weights take on the device.
 */

/** @typedef {{ adapter: string, backend: string, maxBufferBytes: number }} DeviceInfo */

/** @typedef {{ url: string, bytes?: number } | { file: Blob }} ModelSource `bytes` is used where the server sends no length. */

/** @typedef {{ model: ModelInfo, device: DeviceInfo }} LoadResult */

/**
 * @typedef {{ id: number, method: "load", params: ModelSource }
 *   | { id: number, method: "chat", params: ChatRequest }
 *   | { id: number, method: "cancel" | "reset", params?: undefined }} Request
 */

/** @typedef {{ code: string, message: string }} ErrorMessage */

/**
 * @typedef {{ type: "event", id: number, event: any }
 *   | { type: "result", id: number, value: any }
 *   | { type: "error", id: number, error: ErrorMessage }
 *   | { type: "crash", message: string }} Reply
 */

/** Every failure carries a stable `code` beside its message. */
export class HearthError extends Error {
  /**
   * @param {string} code
   * @param {string} message
   */
  constructor(code, message) {
    super(message);
    this.name = "HearthError";
    this.code = code;
  }
}

/**
 * The code and the words of anything that was thrown.
 * @param {unknown} error
 * @returns {ErrorMessage}
 */
export function describeError(error) {
  if (error instanceof Error) {
    const code = "code" in error && typeof error.code === "string" ? error.code : "internal_error";
    return { code, message: error.message };
  }
  return { code: "internal_error", message: String(error) };
}
