/** The chat page with a tiny model: everything that does not need good answers. */

import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { dist } from "../../scripts/dist.mjs";
import {
  ask,
  errorWithCode,
  finishedAnswer,
  loadFile,
  openPage,
  startBrowser,
  startSite,
  tinyModel,
  waitForStatus,
} from "./support.mjs";

/** @type {Awaited<ReturnType<typeof startSite>>} */
let site;
/** @type {import("playwright-core").Browser} */
let browser;
/** @type {Buffer} */
let tiny;

before(async () => {
  [site, browser, tiny] = await Promise.all([startSite(), startBrowser(), tinyModel()]);
});

after(async () => {
  await browser?.close();
  site?.close();
});

/** @param {string} query */
async function openReady(query) {
  const opened = await openPage(browser, site.url + query);
  await loadFile(opened.page, tiny);
  await waitForStatus(opened.page, "Ready");
  return opened;
}

test("chats with a file from this computer, without a complaint in the console", async () => {
  const { page, complaints } = await openReady("/?temperature=0&max_tokens=12");
  const answer = await ask(page, "Hello");
  await waitForStatus(page, "Ready");
  assert.ok(answer.tokens >= 1 && answer.tokens <= 12, `${answer.tokens} tokens`);
  assert.ok(["stop", "length"].includes(answer.finish ?? ""), `ended with ${answer.finish}`);
  assert.match((await page.getByTestId("stats").textContent()) ?? "", /^\d+ tokens? · .*first token after [\d.]+ m?s/);
  assert.equal(await page.getByTestId("message-user").textContent(), "Hello");
  assert.equal(await page.getByTestId("error").isVisible(), false);
  assert.deepEqual(complaints, []);
  await page.close();
});

test("gives the same answer after New chat and after a reload, at temperature 0", async () => {
  const { page } = await openReady("/?temperature=0&max_tokens=12");
  const first = await ask(page, "Once upon a time");

  await page.getByTestId("new-chat").click();
  await waitForStatus(page, "Ready");
  assert.equal(await page.getByTestId("message-user").count(), 0);
  assert.equal(await page.getByTestId("message-assistant").count(), 0);
  assert.equal(await page.getByTestId("stats").textContent(), "");
  assert.deepEqual(await ask(page, "Once upon a time"), first);

  await page.reload();
  await loadFile(page, tiny);
  await waitForStatus(page, "Ready");
  assert.deepEqual(await ask(page, "Once upon a time"), first);
  await page.close();
});

test("goes on with the conversation after Stop, and after New chat in the middle of an answer", async () => {
  const { page } = await openReady("/?temperature=1&seed=1&max_tokens=100000");
  for (const end of ["stop", "new-chat"]) {
    await page.getByTestId("prompt").fill("Tell me everything");
    await page.getByTestId("send").click();
    await page.getByTestId(end).click();
    await waitForStatus(page, "Ready");
    await page.getByTestId("settings").evaluate((details) => details.setAttribute("open", ""));
    await page.getByTestId("max-tokens").fill("4");
    const { tokens } = await ask(page, "And now?");
    assert.ok(tokens <= 4, `${tokens} tokens`);
    await page.getByTestId("max-tokens").fill("");
  }
  assert.equal(await page.getByTestId("message-user").count(), 1);
  await page.close();
});

test("sends with Enter, and starts a new line with Shift+Enter", async () => {
  const { page } = await openReady("/?temperature=0&max_tokens=2");
  const prompt = page.getByTestId("prompt");
  await prompt.focus();
  await page.keyboard.type("one");
  await page.keyboard.press("Shift+Enter");
  await page.keyboard.type("two");
  await page.keyboard.press("Enter");
  await finishedAnswer(page);
  assert.equal(await page.getByTestId("message-user").textContent(), "one\ntwo");
  assert.equal(await prompt.inputValue(), "");
  await page.keyboard.press("Enter");
  assert.equal(await page.getByTestId("message-user").count(), 1, "an empty message is not sent");
  await page.close();
});

test("says that the engine died, and goes on with the conversation once it is loaded again", async () => {
  const { page } = await openReady("/?temperature=0&max_tokens=4");
  await ask(page, "Before");
  const [worker] = page.workers();
  // Evaluated in a task of its own, so that it is the worker that fails and not this evaluation.
  await worker.evaluate(() => void setTimeout(() => Promise.reject(new Error("made to fail"))));
  assert.match(await errorWithCode(page, "worker_failed"), /made to fail.*Load the model again/);
  assert.equal(await page.getByTestId("send").isDisabled(), true);

  await page.getByTestId("load").click();
  await waitForStatus(page, "Ready");
  assert.equal(await page.getByTestId("error").isVisible(), false);
  await ask(page, "After");
  assert.equal(await page.getByTestId("message-assistant").count(), 2);
  await page.close();
});

test("renders Markdown, and nothing in it that could run or load", async () => {
  const { page, complaints } = await openPage(browser, site.url);
  /** @type {string[]} */
  const requests = [];
  page.on("request", (request) => requests.push(request.url()));
  const { html, text, markup } = await page.evaluate(async () => {
    const { MarkdownView } = await import(String(new URL("/web/markdown.js", location.href)));
    const element = document.createElement("div");
    document.body.append(element);
    const hostile = [
      "# Title",
      "**bold** [good](https://example.org) [bad](javascript:alert(1)) [worse](<java\tscript:alert(1)>)",
      '<img src=x onerror="window.hacked = 1"><script>window.hacked = 1</script> one<br>two',
      '<svg onload="window.hacked = 1"></svg><style>body { display: none }</style>',
      '<a href="data:text/html,<script>1</script>" style="position: fixed" id="status">data</a>',
      '<form action="https://example.org"><input name="password"></form><iframe src="https://example.org"></iframe>',
      "![<script>a pixel](https://example.org/pixel.png) [![x](x)](data:text/html,x)",
      "",
      "3. three",
      "",
      "```js\nconst a = '<b>';\n```",
    ].join("\n");
    const view = new MarkdownView(element);
    for (let end = 0; end < hostile.length; end += 7) {
      view.update(hostile.slice(0, end));
      await new Promise(requestAnimationFrame);
    }
    view.finish(hostile);
    const markup = [...element.querySelectorAll("*")].flatMap(({ localName, attributes }) => [
      localName,
      ...[...attributes].map(({ name, value }) => `${localName} ${name}=${value}`),
    ]);
    return { html: element.innerHTML, text: element.textContent ?? "", markup: [...new Set(markup)].sort() };
  });
  await page.waitForTimeout(200);

  assert.equal(await page.evaluate(() => "hacked" in window), false);
  assert.deepEqual(markup, [
    "a",
    "a href=https://example.org",
    "a rel=noopener noreferrer",
    "a target=_blank",
    "br",
    "code",
    "h1",
    "li",
    "ol",
    "ol start=3",
    "p",
    "pre",
    "strong",
  ]);
  assert.match(html, /<pre><code>const a = '&lt;b&gt;';\n<\/code><\/pre>/);
  assert.ok(text.includes('<img src=x onerror="window.hacked = 1">'), "HTML is shown as text");
  assert.deepEqual(
    requests.filter((url) => !url.startsWith(site.url)),
    [],
  );
  assert.deepEqual(complaints, []);
  await page.close();
});

test("renders a growing answer to the same page as a finished one", async () => {
  const { page } = await openPage(browser, site.url);
  const [grown, finished] = await page.evaluate(async () => {
    const { MarkdownView } = await import(String(new URL("/web/markdown.js", location.href)));
    const text =
      "# A\n\nSome *text* and `code`\n\n- one\n- two\n\n  more\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quoted\n\nEnd";
    const [growing, whole] = [document.createElement("div"), document.createElement("div")];
    const view = new MarkdownView(growing);
    for (let end = 1; end <= text.length; end++) {
      view.update(text.slice(0, end));
      await new Promise(requestAnimationFrame);
    }
    await new Promise((resolve) => setTimeout(resolve, 200));
    new MarkdownView(whole).finish(text);
    return [growing.innerHTML, whole.innerHTML];
  });
  assert.equal(grown, finished);
  await page.close();
});

test("works as a static site below another address", async () => {
  const folder = await mkdtemp(join(tmpdir(), "hearth-dist-"));
  const elsewhere = await startSite({ below: folder });
  try {
    await dist(join(folder, "hearth"));
    const { page, complaints } = await openPage(browser, `${elsewhere.url}/below/hearth/index.html?max_tokens=2`);
    await loadFile(page, tiny);
    await waitForStatus(page, "Ready");
    assert.ok((await ask(page, "Hello")).tokens >= 1);
    assert.deepEqual(complaints, []);
    await page.close();
  } finally {
    elsewhere.close();
    await rm(folder, { recursive: true });
  }
});
