/** Makes one table of many measurements: medians, and what went wrong. */

import { LONG, SHORT } from "./prompts.mjs";

/**
 * @typedef {object} Measurement What one run of one row gave.
 * @property {number} loadMs
 * @property {number} warmUpMs
 * @property {Record<string, import("./pages/common.js").Run>} runs By the prompt's name.
 * @property {{ bytes: number, peakBytes: number } | null} [device] What its buffers take on the device, at the end and at most.
 * @property {{ dispatches: number, submits: number, writes: number, readBytes: number } | null} [token] What a token takes of WebGPU.
 * @property {{ main: number | null, gpu: number | null }} memory Bytes at most: of the page's process (or the program), of the one for graphics.
 * @property {string} [browser] Its version.
 * @property {string[]} [wasm] Addresses.
 * @property {{ raw: number, brotli: number }} [wasmSizes]
 */

/**
 * @typedef {object} Attempt
 * @property {string} row
 * @property {number} repetition From 1.
 * @property {number} load What else the machine was doing when it started: processes waiting for a core, over a minute.
 * @property {Measurement} [measurement]
 * @property {string} [error]
 */

/**
 * @typedef {object} Summary
 * @property {string} row
 * @property {number} newTokens
 * @property {number} attempts
 * @property {number} succeeded
 * @property {Figures} figures
 * @property {string[]} errors
 */

/** @typedef {{ [name in keyof typeof FIGURES]: number | null }} Figures */

/** @type {(prompt: string, name: keyof import("./pages/common.js").Run) => (measurement: Measurement) => number | null | undefined} */
const ofRun =
  (prompt, name) =>
  ({ runs }) =>
    /** @type {number | null | undefined} */ (runs[prompt]?.[name]);

/** Where each figure is in a measurement. */
const FIGURES = {
  loadMs: (/** @type {Measurement} */ { loadMs }) => loadMs,
  firstTokenMs: ofRun(SHORT, "firstTokenMs"),
  prefillShort: ofRun(SHORT, "prefillTokensPerSecond"),
  prefillLong: ofRun(LONG, "prefillTokensPerSecond"),
  decodeShort: ofRun(SHORT, "decodeTokensPerSecond"),
  decodeLong: ofRun(LONG, "decodeTokensPerSecond"),
  agreement: ofRun(SHORT, "agreement"),
  deviceBytes: (/** @type {Measurement} */ { device }) => device?.bytes,
  peakDeviceBytes: (/** @type {Measurement} */ { device }) => device?.peakBytes,
  dispatches: (/** @type {Measurement} */ { token }) => token?.dispatches,
  submits: (/** @type {Measurement} */ { token }) => token?.submits,
  readBytes: (/** @type {Measurement} */ { token }) => token?.readBytes,
  wasmBytes: (/** @type {Measurement} */ { wasmSizes }) => wasmSizes?.raw,
  wasmBrotliBytes: (/** @type {Measurement} */ { wasmSizes }) => wasmSizes?.brotli,
  mainMemoryBytes: (/** @type {Measurement} */ { memory }) => memory.main,
  gpuMemoryBytes: (/** @type {Measurement} */ { memory }) => memory.gpu,
};

/**
 * The one in the middle, or between the two in the middle. Null where there is none.
 * @param {number[]} values
 */
export function median(values) {
  if (values.length === 0) return null;
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/**
 * How much of the beginning two texts share, as a part of the first.
 * @param {string} text
 * @param {string} reference
 */
export function agreement(text, reference) {
  let shared = 0;
  while (shared < text.length && text[shared] === reference[shared]) shared += 1;
  return text.length === 0 ? 0 : shared / text.length;
}

/**
 * The median of each figure over the attempts that succeeded, row after row.
 * @param {{ name: string, newTokens: number }[]} rows
 * @param {Attempt[]} attempts
 * @returns {Summary[]}
 */
export function summarize(rows, attempts) {
  return rows.map(({ name, newTokens }) => {
    const own = attempts.filter(({ row }) => row === name);
    const measurements = own.flatMap(({ measurement }) => measurement ?? []);
    const figures = Object.entries(FIGURES).map(([figure, find]) => [
      figure,
      median(measurements.map(find).filter((value) => value !== null && value !== undefined)),
    ]);
    return {
      row: name,
      newTokens,
      attempts: own.length,
      succeeded: measurements.length,
      figures: /** @type {Figures} */ (Object.fromEntries(figures)),
      errors: [...new Set(own.flatMap(({ error }) => error ?? []))],
    };
  });
}

/** @type {{ title: string, cell: (summary: Summary) => string }[]} */
const COLUMNS = [
  { title: "engine", cell: ({ row }) => row },
  { title: "load ms", cell: ({ figures: { loadMs } }) => figures([loadMs]) },
  { title: "first token ms", cell: ({ figures: { firstTokenMs } }) => figures([firstTokenMs]) },
  {
    title: "prefill tok/s, 44 / 523",
    cell: ({ figures: { prefillShort, prefillLong } }) => figures([prefillShort, prefillLong]),
  },
  {
    title: "decode tok/s, 44 / 523",
    cell: ({ figures: { decodeShort, decodeLong } }) => figures([decodeShort, decodeLong]),
  },
  { title: "new tokens", cell: ({ newTokens }) => String(newTokens) },
  {
    title: "dispatches / submits / bytes read per token",
    cell: ({ figures: { dispatches, submits, readBytes } }) => figures([dispatches, submits, readBytes]),
  },
  {
    title: "MB on device, end / peak",
    cell: ({ figures: { deviceBytes, peakDeviceBytes } }) => figures([deviceBytes, peakDeviceBytes].map(megabytes)),
  },
  {
    title: "wasm MB, raw / brotli",
    cell: ({ figures: { wasmBytes, wasmBrotliBytes } }) => figures([wasmBytes, wasmBrotliBytes].map(megabytes)),
  },
  {
    title: "peak RSS MB, page / GPU",
    cell: ({ figures: { mainMemoryBytes, gpuMemoryBytes } }) =>
      figures([mainMemoryBytes, gpuMemoryBytes].map(megabytes)),
  },
  {
    title: "same text",
    cell: ({ figures: { agreement } }) => (agreement === null ? "-" : `${number(100 * agreement)}%`),
  },
  { title: "runs", cell: ({ attempts, succeeded }) => `${succeeded} of ${attempts}` },
];

/**
 * As Markdown, with the errors below it.
 * @param {Summary[]} summaries
 */
export function formatTable(summaries) {
  const cells = [
    COLUMNS.map(({ title }) => title),
    ...summaries.map((summary) => COLUMNS.map(({ cell }) => cell(summary))),
  ];
  const widths = COLUMNS.map((_, column) => Math.max(...cells.map((row) => row[column].length)));
  const line = (/** @type {string[]} */ row) => {
    const padded = row.map((cell, at) => (at === 0 ? cell.padEnd(widths[at]) : cell.padStart(widths[at])));
    return `| ${padded.join(" | ")} |`;
  };
  const rule = `|${widths.map((width, at) => (at === 0 ? "-".repeat(width + 2) : `${"-".repeat(width + 1)}:`)).join("|")}|`;
  const errors = summaries.flatMap(({ row, errors }) => errors.map((error) => `✖ ${row}: ${error}`));
  return [line(cells[0]), rule, ...cells.slice(1).map(line), ...(errors.length ? ["", ...errors] : [])].join("\n");
}

/** Whole from 100 on, and three digits below. @param {number} value */
function number(value) {
  if (Math.abs(value) >= 100) return String(Math.round(value));
  return String(Number(value.toPrecision(3)));
}

/** One figure, or several that belong together. @param {(number | null)[]} values */
function figures(values) {
  const known = values.some((value) => value !== null);
  return known ? values.map((value) => (value === null ? "-" : number(value))).join(" / ") : "-";
}

/** @param {number | null} bytes */
function megabytes(bytes) {
  return bytes === null ? null : bytes / 1e6;
}
