/** The development server: what it gives, what it refuses. */

import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { locate, parseRange, serve } from "../../scripts/serve.mjs";

const MODEL = "GGUF and then some";
/** @type {string} */
let folder;
/** @type {import("node:http").Server} */
let server;
/** @type {string} */
let site;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "hearth-serve-"));
  await writeFile(join(folder, "a.gguf"), MODEL);
  await writeFile(join(folder, "a.wasm"), "");
  server = await serve({ port: 0, folders: { models: folder } });
  const address = /** @type {import("node:net").AddressInfo} */ (server.address());
  site = `http://localhost:${address.port}`;
});

after(async () => {
  server.close();
  await rm(folder, { recursive: true });
});

test("serves the page at the root, and files with their types", async () => {
  const page = await fetch(site);
  assert.equal(page.headers.get("content-type"), "text/html; charset=utf-8");
  assert.match(await page.text(), /<title>Hearth<\/title>/);
  const wasm = await fetch(`${site}/models/a.wasm`);
  assert.equal(wasm.headers.get("content-type"), "application/wasm");
  const model = await fetch(`${site}/models/a.gguf`);
  assert.equal(model.headers.get("content-length"), String(MODEL.length));
  assert.equal(await model.text(), MODEL);
});

test("sends the headers that it was told to, with refusals as well", async () => {
  const isolated = await serve({ port: 0, folders: {}, headers: { "Cross-Origin-Opener-Policy": "same-origin" } });
  try {
    const { port } = /** @type {import("node:net").AddressInfo} */ (isolated.address());
    for (const path of ["", "missing"]) {
      const { headers } = await fetch(`http://localhost:${port}/${path}`);
      assert.equal(headers.get("cross-origin-opener-policy"), "same-origin", path);
    }
  } finally {
    isolated.closeAllConnections();
    isolated.close();
  }
});

test("answers 304 where the browser has the same file", async () => {
  const etag = (await fetch(`${site}/models/a.gguf`)).headers.get("etag") ?? "";
  assert.equal((await fetch(`${site}/models/a.gguf`, { headers: { "if-none-match": etag } })).status, 304);
  assert.equal((await fetch(`${site}/models/a.gguf`, { headers: { "if-none-match": '"x"' } })).status, 200);
});

test("answers a range with that part, and one past the end with 416", async () => {
  const part = await fetch(`${site}/models/a.gguf`, { headers: { range: "bytes=5-7" } });
  assert.equal(part.status, 206);
  assert.equal(part.headers.get("content-range"), `bytes 5-7/${MODEL.length}`);
  assert.equal(await part.text(), "and");
  const beyond = await fetch(`${site}/models/a.gguf`, { headers: { range: "bytes=99-" } });
  assert.equal(beyond.status, 416);
  assert.equal(beyond.headers.get("content-range"), `bytes */${MODEL.length}`);
  const changed = await fetch(`${site}/models/a.gguf`, { headers: { range: "bytes=5-7", "if-range": '"old"' } });
  assert.equal(await changed.text(), MODEL);
});

test("reads ranges as RFC 9110 means them", () => {
  assert.deepEqual(parseRange("bytes=0-", 10), { start: 0, end: 9 });
  assert.deepEqual(parseRange("bytes=2-99", 10), { start: 2, end: 9 });
  assert.deepEqual(parseRange("bytes=-4", 10), { start: 6, end: 9 });
  assert.deepEqual(parseRange("bytes=-40", 10), { start: 0, end: 9 });
  assert.equal(parseRange("bytes=-0", 10), "unsatisfiable");
  assert.equal(parseRange("bytes=10-", 10), "unsatisfiable");
  for (const header of [undefined, "bytes=-", "bytes=5-2", "bytes=0-1,3-4", "items=0-1"]) {
    assert.equal(parseRange(header, 10), null);
  }
});

test("gives nothing outside its folders", async () => {
  for (const path of [
    "/models/../package.json",
    "/models/%2e%2e/package.json",
    "/models/..%2fpackage.json",
    "/models/..%5cpackage.json",
    "/models//etc/passwd",
    "/models/%00",
    "/models/%ff",
    "/models/.hidden",
    "/models",
    "/package.json",
    "/constructor/name",
  ]) {
    assert.equal(await statusOf(path), 404, path);
  }
  assert.equal(locate("/models/..", { models: folder }), null);
});

test("refuses to be written to", async () => {
  const response = await fetch(`${site}/models/a.gguf`, { method: "PUT", body: "x" });
  assert.equal(response.status, 405);
  assert.equal(response.headers.get("allow"), "GET, HEAD");
});

/** The status for a path that is sent as it is: `fetch` would tidy it first. @param {string} path */
function statusOf(path) {
  return new Promise((resolve, reject) => {
    request(site, { path }, (response) => resolve(response.resume().statusCode))
      .on("error", reject)
      .end();
  });
}
