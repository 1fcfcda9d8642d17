/** The page's modules that need no page. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Meter, readModel } from "../../web/download.js";
import { formatBytes, formatDuration, formatPhase, formatProgress } from "../../web/format.js";
import { readSettings } from "../../web/settings.js";

test("reads the presets of an address, and ignores what is not a number", () => {
  assert.deepEqual(readSettings("?model=a&temperature=0&max_tokens=48&autoload=1"), {
    model: "a",
    autoload: true,
    sampling: { temperature: 0, max_tokens: 48 },
  });
  assert.deepEqual(readSettings("?temperature=&top_p=warm&seed=7&autoload=0"), {
    model: null,
    autoload: false,
    sampling: { seed: 7 },
  });
});

test("tells speed and time left from the last seconds", () => {
  const meter = new Meter(10_000);
  meter.add(1000, 0);
  for (let at = 1000; at <= 4000; at += 1000) meter.add(1000, at);
  assert.deepEqual(meter.read(4000), { done: 5000, total: 10_000, bytesPerSecond: 1000, secondsLeft: 5 });
  meter.add(5000, 5000);
  assert.equal(meter.read(5000).secondsLeft, 0);
});

test("tells no time left where the length is not known", () => {
  const meter = new Meter(null);
  meter.add(1000, 0);
  meter.add(1000, 1000);
  assert.equal(meter.read(1000).secondsLeft, null);
});

test("passes a file on byte for byte, and reports its end", async () => {
  const bytes = crypto.getRandomValues(new Uint8Array(60_000));
  /** @type {import("../../web/protocol.js").LoadProgress[]} */
  const reports = [];
  const chunks = [];
  for await (const chunk of readModel({ file: new Blob([bytes]) }, (progress) => reports.push(progress))) {
    chunks.push(chunk);
  }
  assert.deepEqual(Buffer.concat(chunks), Buffer.from(bytes));
  assert.equal(reports.at(0)?.done, 0);
  assert.equal(reports.at(-1)?.done, bytes.length);
  assert.equal(reports.at(-1)?.phase, "reading");
});

test("takes a web page for what it is", async () => {
  const page = new Blob(["\n<!DOCTYPE html><title>Not found</title>"]);
  await assert.rejects(readModel({ file: page }, () => {}).next(), { code: "not_a_model" });
});

test("writes figures as people read them", () => {
  assert.equal(formatBytes(98_362_432), "98.4 MB");
  assert.equal(formatBytes(807_694_464), "807.7 MB");
  assert.equal(formatBytes(1_234_000_000), "1.23 GB");
  assert.equal(formatDuration(0.42), "0.4 s");
  assert.equal(formatDuration(75), "75 s");
  assert.equal(formatDuration(240), "4 min");
  assert.equal(formatPhase("warming_up"), "Warming up");
  assert.equal(
    formatProgress({ phase: "downloading", done: 5e6, total: 10e6, bytesPerSecond: 1e6, secondsLeft: 5 }),
    "5.0 MB of 10.0 MB · 1.0 MB/s · 5.0 s left",
  );
  assert.equal(formatProgress({ phase: "uploading", done: 3, total: 30 }), "3 of 30");
});
