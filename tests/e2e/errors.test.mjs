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
  const { page, url, close } = await openPageWithModel((response) => {
    if (generous) response.end(tiny);
    else response.write(tiny.subarray(0, tiny.length / 2), () => setTimeout(() => response.destroy(), 100));
  });
  try {
    await loadUrl(page, url);
    assert.match(await errorWithCode(page, "network_error"), /broke off after \d+ bytes/);
    generous = true;
    await page.getByTestId("load").click();
    await waitForStatus(page, "Ready");
  } finally {
    await close();
  }
});

test("stops loading when asked to", async () => {
  let stalled = true;
  const { page, url, close } = await openPageWithModel((response) => {
    if (stalled) response.write(tiny.subarray(0, tiny.length / 2));
    else response.end(tiny);
  });
  try {
    await loadUrl(page, url);
    await page.getByTestId("cancel-load").click();
    await waitForStatus(page, "No model loaded");
    assert.equal(await page.getByTestId("error").isVisible(), false);
    // The browser ends a worker when it gets to it.
    for (let waited = 0; page.workers().length > 0; waited++) {
      assert.ok(waited < 100, "the worker goes on");
      await page.waitForTimeout(100);
    }
    stalled = false;
    await page.getByTestId("load").click();
    await waitForStatus(page, "Ready");
  } finally {
    await close();
  }
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

/**
 * A page, and an address whose answer the test writes. A page may only connect to its own origin and to https, so the test's server is reached by
 * way of the page's own.
 * @param {(response: import("node:http").ServerResponse) => void} respond
 */
async function openPageWithModel(respond) {
  const server = createServer((_, response) => {
    response.writeHead(200, { "Content-Length": tiny.length, "Access-Control-Allow-Origin": "*" });
    respond(response);
  });
  await new Promise((resolve) => server.listen(0, "localhost", () => resolve(undefined)));
  const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
  const { page } = await openPage(browser, `${site.url}/?temperature=0&max_tokens=4`);
  const path = "/models/unreliable.gguf";
  await page.context().route(`**${path}`, (route) => route.continue({ url: `http://localhost:${port}/` }));
  const close = async () => {
    await page.close();
    server.closeAllConnections();
    server.close();
  };
  return { page, url: site.url + path, close };
}
