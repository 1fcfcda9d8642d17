/**
 * A model as a stream of bytes, from the web or from a file on this computer: says how fast it goes, ends when
 * nobody wants it any more, and turns what networks do into errors with a code.
 */

import { HearthError } from "./protocol.js";

const REPORT_EVERY_MS = 100;
const SPEED_WINDOW_MS = 3000;

/**
 * Yields the bytes in order. A chunk counts as done when the consumer asks for the next one, so that the progress
 * is that of the whole pipeline, not of the network alone.
 * @param {import("./protocol.js").ModelSource} source
 * @param {(progress: import("./protocol.js").LoadProgress) => void} onProgress
 * @returns {AsyncGenerator<Uint8Array, void, void>}
 */
export async function* readModel(source, onProgress) {
  const { stream, total } = "file" in source ? openFile(source.file) : await openUrl(source.url, source.bytes ?? null);
  const phase = "file" in source ? "reading" : "downloading";
  const meter = new Meter(total);
  const reader = stream.getReader();
  let reportedAt = -Infinity;
  onProgress({ phase, ...meter.read(performance.now()) });
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((error) => {
        throw interrupted(source, meter.done, error);
      });
      if (done) break;
      if (meter.done === 0) rejectWebPage(source, value);
      yield value;
      const now = performance.now();
      meter.add(value.byteLength, now);
      if (now - reportedAt >= REPORT_EVERY_MS) {
        reportedAt = now;
        onProgress({ phase, ...meter.read(now) });
      }
    }
    onProgress({ phase, ...meter.read(performance.now()) });
  } finally {
    // Closes the connection when the consumer left early; says nothing when the stream has already ended or failed.
    reader.cancel().catch(() => {});
  }
}

/** @param {Blob} file */
function openFile(file) {
  return { stream: file.stream(), total: file.size };
}

/**
 * @param {string} url
 * @param {number | null} expectedBytes
 */
async function openUrl(url, expectedBytes) {
  const response = await fetch(url).catch((error) => {
    throw new HearthError(
      "network_error",
      `${url} cannot be reached (${error.message}). Check the connection, and that this server lets other sites read it (CORS).`,
    );
  });
  if (!response.ok || !response.body) {
    const hint = response.status === 404 ? " There is no such file: check the address." : " Try again later.";
    throw new HearthError("http_error", `${url} answered ${response.status} ${response.statusText}.`.trim() + hint);
  }
  if (response.headers.get("content-type")?.startsWith("text/html")) throw webPage(url);
  const length = response.headers.has("content-encoding") ? null : Number(response.headers.get("content-length"));
  return { stream: response.body, total: length || expectedBytes };
}

/**
 * Servers that answer every address with their start page often send no useful content type.
 * @param {import("./protocol.js").ModelSource} source
 * @param {Uint8Array} first
 */
function rejectWebPage(source, first) {
  const start = new TextDecoder().decode(first.subarray(0, 64)).trimStart().toLowerCase();
  if (start.startsWith("<!doctype") || start.startsWith("<html")) {
    throw webPage("url" in source ? source.url : "The file");
  }
}

/** @param {string} where */
function webPage(where) {
  return new HearthError(
    "not_a_model",
    `${where} is a web page, not a model. A link to a .gguf file is needed; on Hugging Face it contains /resolve/, not /blob/.`,
  );
}

/**
 * @param {import("./protocol.js").ModelSource} source
 * @param {number} done
 * @param {Error} error
 */
function interrupted(source, done, error) {
  return "file" in source
    ? new HearthError("file_error", `The file cannot be read (${error.message}). Choose it again.`)
    : new HearthError("network_error", `The download broke off after ${done} bytes (${error.message}). Load it again.`);
}

/** Counts bytes, and tells the speed over the last seconds. */
export class Meter {
  /** @param {number | null} total */
  constructor(total) {
    this.total = total;
    this.done = 0;
    /** @type {{ at: number, done: number }[]} */
    this.samples = [];
  }

  /**
   * @param {number} bytes
   * @param {number} now In milliseconds.
   */
  add(bytes, now) {
    this.done += bytes;
    const last = this.samples.at(-1);
    if (last && now - last.at < REPORT_EVERY_MS / 2) return;
    this.samples.push({ at: now, done: this.done });
    while (this.samples.length > 2 && now - this.samples[0].at > SPEED_WINDOW_MS) this.samples.shift();
  }

  /** @param {number} now In milliseconds. */
  read(now) {
    const first = this.samples[0];
    const elapsed = first ? now - first.at : 0;
    const bytesPerSecond = elapsed > 0 ? ((this.done - first.done) * 1000) / elapsed : 0;
    const left = this.total === null ? null : Math.max(0, this.total - this.done);
    const secondsLeft = left === 0 ? 0 : left !== null && bytesPerSecond > 0 ? left / bytesPerSecond : null;
    return { done: this.done, total: this.total, bytesPerSecond, secondsLeft };
  }
}
