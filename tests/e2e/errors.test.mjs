/** What the page says when something is wrong, and that it can still be used afterwards. */

import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import {
  ask,
  errorWithCode,
  loadFile,
  loadUrl,
  openPage,
  startBrowser,
  startSite,
  tinyModel,
  waitForStatus,
} from "./support.mjs";

/** @type {string} */
let models;
/** @type {Awaited<ReturnType<typeof startSite>>} */
let site;
/** @type {import("playwright-core").Browser} */
let browser;
/** @type {Buffer} */
let tiny;

before(async () => {
  models = await mkdtemp(join(tmpdir(), "hearth-models-"));
  tiny = await tinyModel();
  await Promise.all([
    writeFile(join(models, "tiny.gguf"), tiny),
    writeFile(join(models, "truncated.gguf"), tiny.subarray(0, tiny.length - 1000)),
    writeFile(join(models, "page.gguf"), "<!doctype html><title>Sign in</title>"),
    writeFile(join(models, "page.html"), "<!doctype html><title>Sign in</title>"),
    writeFile(join(models, "noise.gguf"), Buffer.alloc(4096, 7)),
  ]);
  [site, browser] = await Promise.all([startSite({ models }), startBrowser()]);
});

after(async () => {
  await browser?.close();
  site?.close();
  await rm(models, { recursive: true });
});

test("names what is wrong with a model, and then loads a good one on the same page", async () => {
  const { page } = await openPage(browser, `${site.url}/?temperature=0&max_tokens=4`);
  for (const [name, code, words] of /** @type {const} */ ([
    ["missing.gguf", "http_error", /404.*no such file/],
    ["page.html", "not_a_model", /is a web page, not a model/],
    ["page.gguf", "not_a_model", /is a web page, not a model/],
    ["noise.gguf", "invalid_file", /magic/],
    ["truncated.gguf", "truncated_file", /truncated/],
  ])) {
    await loadUrl(page, `${site.url}/models/${name}`);
    await page.locator(`[data-testid="error"][data-code="${code}"]`).waitFor();
    assert.match(await errorWithCode(page, code), words, name);
    await waitForStatus(page, "Loading failed");
  }
  await loadUrl(page, `${site.url}/models/tiny.gguf`);
  await waitForStatus(page, "Ready");
  assert.equal(await page.getByTestId("error").isVisible(), false);
  assert.ok((await ask(page, "Hello")).tokens >= 1);
  await page.close();
});

test("says that a download broke off, and loads it the next time", async () => {
  let generous = false;
  const server = createServer((_, response) => {
    response.writeHead(200, { "Content-Length": tiny.length, "Access-Control-Allow-Origin": "*" });
    if (generous) response.end(tiny);
    else response.write(tiny.subarray(0, tiny.length / 2), () => setTimeout(() => response.destroy(), 100));
  });
  await new Promise((resolve) => server.listen(0, "localhost", () => resolve(undefined)));
  const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
  // The page may only connect to its own origin and to https; the test reaches its server by way of the page's own.
  const { page } = await openPage(browser, `${site.url}/?temperature=0&max_tokens=4`);
  await page
    .context()
    .route("**/models/unreliable.gguf", (route) => route.continue({ url: `http://localhost:${port}/` }));
  try {
    await loadUrl(page, `${site.url}/models/unreliable.gguf`);
    assert.match(await errorWithCode(page, "network_error"), /broke off after \d+ bytes/);
    generous = true;
    await page.getByTestId("load").click();
    await waitForStatus(page, "Ready");
  } finally {
    await page.close();
    server.closeAllConnections();
    server.close();
  }
});

test("stops loading when asked to", async () => {
  const { page } = await openPage(browser, site.url);
  await loadFile(page, tiny);
  await page.getByTestId("cancel-load").click();
  await waitForStatus(page, "No model loaded");
  assert.equal(await page.getByTestId("error").isVisible(), false);
  assert.equal(page.workers().length, 0);
  await page.getByTestId("load").click();
  await waitForStatus(page, "Ready");
  await page.close();
});

test("says so where there is no WebGPU, before anything is downloaded", async () => {
  const page = await browser.newPage();
  /** @type {string[]} */
  const requests = [];
  page.on("request", (request) => requests.push(new URL(request.url()).pathname));
  await page.addInitScript(() => Object.defineProperty(Navigator.prototype, "gpu", { get: () => undefined }));
  await page.goto(`${site.url}/?autoload=1`);
  assert.match(await errorWithCode(page, "webgpu_unavailable"), /no WebGPU.*current Chrome, Edge, Safari or Firefox/);
  await waitForStatus(page, "WebGPU is not available");
  assert.equal(await page.getByTestId("load").isDisabled(), true);
  assert.deepEqual(
    requests.filter((path) => /^\/(models|pkg)\//.test(path)),
    [],
  );
  await page.close();
});

test("says so where WebGPU finds no adapter", async () => {
  const page = await browser.newPage();
  await page.addInitScript(() => Object.defineProperty(GPU.prototype, "requestAdapter", { value: async () => null }));
  await page.goto(site.url);
  assert.match(await errorWithCode(page, "webgpu_unavailable"), /found no graphics adapter.*hardware acceleration/);
  assert.equal(await page.getByTestId("load").isDisabled(), true);
  await page.close();
});
