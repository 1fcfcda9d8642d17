/**
 * The real thing: SmolLM2-135M-Instruct through the page. The answers are compared with those that Hugging Face's
 * transformers gives in float32. `UPDATE_SCREENSHOT=1` writes the finished conversation to docs/chat.png.
 */

import assert from "node:assert/strict";
import { mkdir, readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { root } from "../../scripts/lib/paths.mjs";
import { ask, finishedAnswer, openPage, startBrowser, startSite, waitForStatus } from "./support.mjs";

const MAX_TOKENS = 24;
const CAPITAL = "What is the capital of France?";
const OCEAN = "Write a short paragraph about the ocean and why it matters to people.";

/** @type {Awaited<ReturnType<typeof startSite>>} */
let site;
/** @type {import("playwright-core").Browser} */
let browser;
/** @type {import("playwright-core").Page} */
let page;
/** @type {string[]} */
let complaints;
/** What transformers answers. @type {Map<string, string>} */
let reference;

before(async () => {
  const { prompts } = JSON.parse(await readFile(root("tests/fixtures/smollm2/hf_f32.json"), "utf8"));
  reference = new Map(
    Object.values(prompts)
      .filter(({ messages }) => messages?.length === 1)
      .map(({ messages, greedy_text }) => [messages[0].content, greedy_text]),
  );
  [site, browser] = await Promise.all([startSite(), startBrowser()]);
  const url = `${site.url}/?model=smollm2-135m-instruct-q4_1&autoload=1&temperature=0&max_tokens=${MAX_TOKENS}`;
  ({ page, complaints } = await openPage(browser, url));
});

after(async () => {
  await browser?.close();
  site?.close();
});

test("shows how the download goes, then becomes ready", async () => {
  const shown = await page.evaluate(
    () =>
      new Promise((resolve) => {
        const texts = new Set();
        const status = document.querySelector('[data-testid="status"]');
        const observer = new MutationObserver(look);
        function look() {
          texts.add(document.querySelector('[data-element="progress-text"]')?.textContent);
          if (status?.textContent !== "Ready" && status?.textContent !== "Loading failed") return;
          observer.disconnect();
          resolve([...texts]);
        }
        observer.observe(document.body, { subtree: true, childList: true, characterData: true });
        look();
      }),
  );
  await waitForStatus(page, "Ready");
  assert.ok(
    shown.some((/** @type {string} */ text) =>
      /^[\d.]+ MB of 98\.4 MB · [\d.]+ [kM]B\/s · [\d.]+ (s|min) left$/.test(text),
    ),
    JSON.stringify(shown),
  );
});

test("answers a first question as the reference does", async () => {
  const { text, finish } = await ask(page, CAPITAL);
  assert.equal(text, reference.get(CAPITAL));
  assert.equal(finish, "stop");
});

test("answers a second question in the same conversation, one piece after the other", async () => {
  await page.getByTestId("prompt").fill(OCEAN);
  const updates = page.evaluate(
    () =>
      new Promise((resolve) => {
        /** @type {Set<string>} */
        const texts = new Set();
        const observer = new MutationObserver(() => {
          const answer = [...document.querySelectorAll('[data-testid="message-assistant"]')][1];
          if (answer?.textContent) texts.add(answer.textContent);
          if (!(answer instanceof HTMLElement) || !answer.dataset.finish) return;
          observer.disconnect();
          resolve(texts.size);
        });
        observer.observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true });
      }),
  );
  await page.getByTestId("send").click();
  const { text, tokens } = await finishedAnswer(page);
  assert.match(text, /ocean/i);
  assert.ok(tokens <= MAX_TOKENS, `${tokens} tokens`);
  const count = Number(await updates);
  assert.ok(count >= 10, `${count} updates`);
  assert.match((await page.getByTestId("stats").textContent()) ?? "", /tokens\/s.*first token after.*of them kept/);
  assert.equal(await page.getByTestId("message-user").count(), 2);
  if (process.env.UPDATE_SCREENSHOT === "1") {
    await mkdir(root("docs"), { recursive: true });
    await page.screenshot({ path: root("docs/chat.png") });
  }
});

test("stops within two tokens, and the conversation goes on", async () => {
  await page.getByTestId("prompt").fill("Tell me a long story about a lighthouse.");
  await page.getByTestId("send").click();
  const atStop = await page.evaluate(
    () =>
      new Promise((resolve) => {
        const stats = document.querySelector('[data-testid="stats"]');
        const stop = document.querySelector('[data-testid="stop"]');
        const observer = new MutationObserver(() => {
          if (!(stats instanceof HTMLElement) || !(stop instanceof HTMLElement)) return;
          const tokens = Number(stats.dataset.tokens);
          if (tokens < 3) return;
          observer.disconnect();
          stop.click();
          resolve(tokens);
        });
        if (stats) observer.observe(stats, { attributes: true });
      }),
  );
  const { tokens, finish, text } = await finishedAnswer(page);
  assert.equal(finish, "cancelled");
  assert.ok(tokens - Number(atStop) <= 2, `stopped at ${atStop}, ended at ${tokens}`);
  assert.ok(text.length > 0);
  await waitForStatus(page, "Ready");
});

test("forgets everything with New chat", async () => {
  await page.getByTestId("new-chat").click();
  await waitForStatus(page, "Ready");
  assert.equal(await page.getByTestId("message-assistant").count(), 0);
  const { text } = await ask(page, CAPITAL);
  assert.equal(text, reference.get(CAPITAL));
});

test("works again after a reload", async () => {
  await page.reload();
  await waitForStatus(page, "Ready");
  const { text, finish } = await ask(page, OCEAN);
  assert.equal(finish, "length");
  assert.ok(reference.get(OCEAN)?.startsWith(text), text);
});

test("leaves no complaint in the console", () => {
  assert.deepEqual(complaints, []);
});
