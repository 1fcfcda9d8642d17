/** What the end-to-end tests share: a server, a browser with WebGPU on a software adapter, and a page to act on. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { chromium } from "playwright-core";
import { QUIET, SOFTWARE_WEBGPU, findChrome } from "../../scripts/lib/browser.mjs";
import { root } from "../../scripts/lib/paths.mjs";
import { FOLDERS, serve } from "../../scripts/serve.mjs";

/** A software adapter compiles and computes slowly; this is for the slowest single step. */
export const PATIENCE_MS = 300_000;

const TINY = root("tests/fixtures/tiny/llama32/Q4_0.gguf");
/** Answers to anything; the tiny checkpoint brings no template of its own. */
const TEMPLATE =
  "{% for message in messages %}<{{ message.role }}>{{ message.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

/**
 * Serves the checkout on a free port.
 * @param {Record<string, string>} [folders] Beside the usual ones, or in their place.
 */
export async function startSite(folders) {
  const server = await serve({ port: 0, folders: { ...FOLDERS, ...folders } });
  const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
  return {
    url: `http://localhost:${port}`,
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

/** @param {string[]} [flags] */
export async function startBrowser(flags = SOFTWARE_WEBGPU) {
  const executablePath = findChrome();
  assert.ok(executablePath, "there is no Chrome or Chromium: set CHROME_PATH");
  return chromium.launch({ executablePath, args: [...QUIET, ...flags] });
}

/**
 * Opens a page that remembers everything its console complains about, violations of the security policy included.
 * @param {import("playwright-core").Browser} browser
 * @param {string} url
 */
export async function openPage(browser, url) {
  const page = await browser.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  /** @type {string[]} */
  const complaints = [];
  page.on("console", (message) => {
    if (message.type() === "error") complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(error.message));
  await page.goto(url);
  return { page, complaints };
}

/**
 * Waits until the status is exactly this.
 * @param {import("playwright-core").Page} page
 * @param {string} text
 */
export async function waitForStatus(page, text) {
  await page.getByTestId("status").getByText(text, { exact: true }).waitFor();
}

/**
 * Picks a file as if it were on the visitor's computer, and loads it.
 * @param {import("playwright-core").Page} page
 * @param {Buffer} bytes
 */
export async function loadFile(page, bytes) {
  await page.getByTestId("model").selectOption("file");
  await page
    .getByTestId("model-file")
    .setInputFiles({ name: "model.gguf", mimeType: "application/octet-stream", buffer: bytes });
  await page.getByTestId("load").click();
}

/**
 * Loads what is at an address.
 * @param {import("playwright-core").Page} page
 * @param {string} url
 */
export async function loadUrl(page, url) {
  await page.getByTestId("model").selectOption("link");
  await page.getByTestId("model-url").fill(url);
  await page.getByTestId("load").click();
}

/**
 * Asks, waits for the end of the answer, and returns it with how it ended.
 * @param {import("playwright-core").Page} page
 * @param {string} question
 */
export async function ask(page, question) {
  await page.getByTestId("prompt").fill(question);
  await page.getByTestId("send").click();
  return finishedAnswer(page);
}

/** @param {import("playwright-core").Page} page */
export async function finishedAnswer(page) {
  await page.locator('[data-testid="message-assistant"]:last-child[data-finish]').waitFor({ state: "attached" });
  const answer = page.getByTestId("message-assistant").last();
  return {
    text: (await answer.textContent())?.trim() ?? "",
    finish: await answer.getAttribute("data-finish"),
    tokens: Number(await page.getByTestId("stats").getAttribute("data-tokens")),
  };
}

/**
 * Waits for an error, and checks its code.
 * @param {import("playwright-core").Page} page
 * @param {string} code
 * @returns {Promise<string>} Its words.
 */
export async function errorWithCode(page, code) {
  const error = page.getByTestId("error");
  await error.waitFor();
  assert.equal(await error.getAttribute("data-code"), code, (await error.textContent()) ?? "");
  return (await error.textContent()) ?? "";
}

/** A checkpoint of random weights that loads in a moment, with a chat template so that one can talk to it. */
export async function tinyModel() {
  return withChatTemplate(await readFile(TINY), TEMPLATE);
}

/**
 * Adds `tokenizer.chat_template` as the first metadata entry of a GGUF file. Its length is made a multiple of the
 * file's alignment, so that everything behind it stays aligned.
 * @param {Buffer} gguf
 * @param {string} template
 */
function withChatTemplate(gguf, template) {
  const ALIGNMENT = 32;
  const HEADER = 24;
  const STRING = 8;
  const key = Buffer.from("tokenizer.chat_template");
  const fixed = 8 + key.length + 4 + 8;
  const padding = (ALIGNMENT - ((fixed + template.length + "{##}".length) % ALIGNMENT)) % ALIGNMENT;
  const value = Buffer.from(`${template}{#${" ".repeat(padding)}#}`);

  const entry = Buffer.alloc(fixed + value.length);
  let at = entry.writeBigUInt64LE(BigInt(key.length), 0);
  at += key.copy(entry, at);
  at = entry.writeUInt32LE(STRING, at);
  at = entry.writeBigUInt64LE(BigInt(value.length), at);
  value.copy(entry, at);

  const header = Buffer.from(gguf.subarray(0, HEADER));
  header.writeBigUInt64LE(header.readBigUInt64LE(16) + 1n, 16);
  return Buffer.concat([header, entry, gguf.subarray(HEADER)]);
}
