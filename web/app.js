/**
 * The chat page: what happens when. It uses the same `hearth.js` that npm users get.
 */

import { Hearth, HearthError, checkWebGpu } from "./hearth.js";
import { describeError } from "./protocol.js";
import { readSettings } from "./settings.js";
import { View } from "./view.js";

const CATALOG = new URL("./models.json", import.meta.url);
/** @type {import("./protocol.js").ChatOptions} */
const DEFAULTS = { temperature: 0.7, max_tokens: 512 };

const view = new View();
const settings = readSettings(location.search);

/** @type {import("./view.js").CatalogEntry[]} */
let catalog = [];
/** @type {Hearth | undefined} */
let hearth;
/** What the loaded model's authors recommend. */
let recommended = DEFAULTS;
/** @type {AbortController | undefined} */
let loading;
/** @type {{ answer: import("./hearth.js").Answer, done: Promise<void> } | undefined} */
let answering;
/** The conversation as the model sees it: finished turns only. @type {import("./protocol.js").Message[]} */
let messages = [];

view.loader.addEventListener("submit", (event) => {
  event.preventDefault();
  load();
});
view.cancelLoad.addEventListener("click", () => loading?.abort());
view.changeModel.addEventListener("click", () => unload("No model loaded"));
view.composer.addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
view.stop.addEventListener("click", () => answering?.answer.cancel());
view.newChat.addEventListener("click", newChat);

await start();

async function start() {
  view.presetSampling(settings.sampling);
  view.showSamplingDefaults(DEFAULTS);
  const [unsupported] = await Promise.all([checkWebGpu(), showCatalog()]);
  if (unsupported) {
    view.setState("unsupported", "WebGPU is not available");
    view.showError(unsupported);
    return;
  }
  view.setState("empty", "No model loaded");
  // An address made by somebody else may choose among the known models, but not make this page fetch anything at all.
  if (settings.autoload && "id" in view.selection) await load();
}

async function showCatalog() {
  try {
    const response = await fetch(CATALOG);
    if (!response.ok) throw new HearthError("http_error", `The list of models cannot be read (${response.status}).`);
    catalog = await response.json();
  } catch (error) {
    view.showError(describeError(error));
  }
  view.showCatalog(catalog, settings.model);
}

async function load() {
  const { id, url, file } = view.selection;
  const entry = catalog.find((entry) => entry.id === id);
  const model = file ?? (entry ? { url: new URL(entry.url, CATALOG), bytes: entry.bytes } : url);
  if (!model || loading || hearth) return;

  loading = new AbortController();
  view.showError(null);
  view.setState("loading", "Starting…");
  view.showProgress({ phase: "starting", done: 0, total: null });
  try {
    const { signal } = loading;
    const loaded = await Hearth.load(model, { signal, onProgress: (progress) => view.showProgress(progress) });
    hearth = loaded;
    loaded.lost.then((error) => {
      if (hearth === loaded) fail(error);
    });
    recommended = { ...DEFAULTS, ...entry?.sampling };
    view.showSamplingDefaults(recommended);
    view.showModel(entry?.title ?? loaded.model.name, loaded.model, loaded.device);
    view.setState("ready", "Ready");
    view.focusPrompt();
  } catch (error) {
    const { code, message } = describeError(error);
    view.setState("empty", code === "cancelled" ? "No model loaded" : "Loading failed");
    if (code !== "cancelled") view.showError({ code, message });
  } finally {
    loading = undefined;
  }
}

/** @param {string} status */
function unload(status) {
  hearth?.close();
  hearth = undefined;
  view.setState("empty", status);
}

/**
 * The engine cannot go on. The conversation stays, and goes on once a model is loaded again.
 * @param {{ code: string, message: string }} error
 */
function fail(error) {
  unload("Stopped");
  view.showError(error);
}

function send() {
  const content = view.prompt.value.trim();
  if (!content || !hearth || answering) return;
  view.prompt.value = "";
  view.showError(null);
  view.clearStats();
  view.addUserMessage(content);
  view.setState("answering", "Answering…");
  const turn = { role: /** @type {const} */ ("user"), content };
  const answer = hearth.chat([...messages, turn], {
    ...recommended,
    ...settings.sampling,
    ...view.sampling,
    onPrefill: ({ done, total }) => view.setStatus(done < total ? `Reading ${done} of ${total} tokens…` : "Answering…"),
  });
  answering = { answer, done: follow(hearth, turn, answer) };
}

/**
 * Shows an answer as it arrives, and keeps it as part of the conversation however it ends. A turn that got no answer
 * at all is left out, because templates want questions and answers to alternate.
 * @param {Hearth} engine
 * @param {import("./protocol.js").Message} turn
 * @param {import("./hearth.js").Answer} answer
 */
async function follow(engine, turn, answer) {
  const message = view.addAnswer();
  const sentAt = performance.now();
  let firstAt = 0;
  let text = "";
  /** @type {import("./protocol.js").ChatResult["finish_reason"] | "error"} */
  let ending = "error";
  try {
    for await (const delta of answer) {
      const now = performance.now();
      firstAt ||= now;
      text += delta.text;
      message.update(text);
      view.showStats({
        tokens: delta.tokens,
        firstTokenSeconds: (firstAt - sentAt) / 1000,
        tokensPerSecond: ((delta.tokens - 1) * 1000) / (now - firstAt || Infinity),
      });
    }
    const { finish_reason, usage, timings } = await answer.result;
    ending = finish_reason;
    view.showStats({
      tokens: usage.completion_tokens,
      firstTokenSeconds: timings.time_to_first_token_ms / 1000,
      tokensPerSecond: timings.decode_tokens_per_second,
      promptTokens: usage.prompt_tokens,
      cachedTokens: usage.cached_tokens,
    });
  } catch (error) {
    const described = describeError(error);
    if (described.code === "device_lost") fail(described);
    else view.showError(described);
  }
  message.finish(text, ending);
  if (text) messages.push(turn, { role: "assistant", content: text });
  answering = undefined;
  if (hearth === engine) {
    view.setState("ready", "Ready");
    view.focusPrompt();
  }
}

async function newChat() {
  answering?.answer.cancel();
  await answering?.done;
  messages = [];
  view.clearConversation();
  view.showError(null);
  if (!hearth) return;
  view.setState("ready", "Ready");
  view.focusPrompt();
  await hearth.reset().catch((error) => view.showError(describeError(error)));
}
