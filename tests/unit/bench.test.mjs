/** What the bench makes of its measurements, and the counts of single tokens. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { agreement, formatTable, median, summarize } from "../../bench/table.mjs";
import { tokenCosts } from "../../scripts/lib/counting.mjs";

/**
 * @param {number} loadMs
 * @param {number} decode
 * @returns {import("../../bench/table.mjs").Measurement}
 */
function measured(loadMs, decode) {
  const run = {
    promptTokens: 44,
    newTokens: 3,
    firstTokenMs: 1000,
    prefillTokensPerSecond: 44,
    decodeTokensPerSecond: decode,
    text: "abc",
    agreement: 1,
  };
  return { loadMs, warmUpMs: 1, runs: { ocean: run }, memory: { main: 250_000_000, gpu: null } };
}

test("takes the value in the middle, or between the two in the middle", () => {
  assert.equal(median([]), null);
  assert.equal(median([7]), 7);
  assert.equal(median([10, 9, 100]), 10);
  assert.equal(median([4, 1, 3, 2]), 2.5);
});

test("tells how far a text goes along with the reference", () => {
  assert.equal(agreement("The sea", "The sea is wide"), 1);
  assert.equal(agreement("The sky", "The sea is wide"), 5 / 7);
  assert.equal(agreement("", "The sea"), 0);
});

test("takes each row's medians from the runs that succeeded, and keeps every error once", () => {
  const attempts = [
    { row: "a", repetition: 1, load: 0, measurement: measured(10, 3) },
    { row: "b", repetition: 1, load: 0, error: "no Python" },
    { row: "a", repetition: 2, load: 0, measurement: measured(30, 1) },
    { row: "b", repetition: 2, load: 0, error: "no Python" },
    { row: "a", repetition: 3, load: 0, error: "late" },
  ];
  const rows = ["a", "b", "c"].map((name) => ({ name, newTokens: 3 }));
  const [a, b, c] = summarize(rows, attempts);
  assert.deepEqual([a.attempts, a.succeeded, a.errors], [3, 2, ["late"]]);
  assert.deepEqual([a.figures.loadMs, a.figures.decodeShort, a.figures.decodeLong], [20, 2, null]);
  assert.deepEqual([b.attempts, b.succeeded, b.errors, b.figures.loadMs], [2, 0, ["no Python"], null]);
  assert.deepEqual([c.attempts, c.errors], [0, []]);
});

test("prints a table whose lines are equally long, and the errors below", () => {
  const measurement = {
    ...measured(1234.5, 0.12345),
    token: { dispatches: 513, submits: 18, writes: 2, readBytes: 4 },
    device: { bytes: 98_765_432, peakBytes: 123_456_789 },
  };
  const attempts = [
    { row: "Hearth", repetition: 1, load: 0, measurement },
    { row: "rival", repetition: 1, load: 0, error: "no Python" },
  ];
  const rows = ["Hearth", "rival"].map((name) => ({ name, newTokens: 3 }));
  const [head, rule, ours, theirs, blank, error] = formatTable(summarize(rows, attempts)).split("\n");
  assert.equal(new Set([head, rule, ours, theirs].map((line) => line.length)).size, 1);
  const cells = (/** @type {string} */ line) => line.split("|").map((cell) => cell.trim());
  assert.deepEqual(cells(ours).slice(1, -1), [
    ...["Hearth", "1235", "1000", "44 / -", "0.123 / -", "3", "513 / 18 / 4", "98.8 / 123", "-"],
    ...["250 / -", "100%", "1 of 1"],
  ]);
  assert.deepEqual(cells(theirs).slice(1, -1), ["rival", ...Array(4).fill("-"), "3", ...Array(5).fill("-"), "0 of 1"]);
  assert.deepEqual([blank, error], ["", "✖ rival: no Python"]);
});

test("tells what each token took, and begins anew with each answer", () => {
  const names = /** @type {const} */ (["submits", "dispatches", "readBytes"]);
  const marks = [
    [1, 5, 100, 8],
    [2, 6, 120, 12],
    [3, 7, 140, 16],
    [1, 20, 500, 24],
    [2, 21, 520, 28],
  ].map(([tokens, ...values], index) => ({
    tokens,
    at: 10 * index,
    counters: /** @type {any} */ (Object.fromEntries(names.map((name, at) => [name, values[at]]))),
  }));
  const each = { submits: 1, dispatches: 20, readBytes: 4 };
  assert.deepEqual(
    tokenCosts(marks),
    [2, 3, 2].map((tokens) => ({ tokens, ms: 10, counters: each })),
  );
});
