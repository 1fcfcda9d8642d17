/**
 * Everything that touches the page: reads the controls, shows the state. It decides nothing.
 */

import { formatBytes, formatCount, formatDuration, formatPhase, formatProgress, formatRate } from "./format.js";
import { MarkdownView } from "./markdown.js";

/**
 * @typedef {object} CatalogEntry One model of `models.json`.
 * @property {string} id
 * @property {string} title
 * @property {string} url Relative to the catalog.
 * @property {string} source Where it comes from on the web.
 * @property {number} bytes
 * @property {string} sha256
 * @property {string} licence An SPDX identifier.
 * @property {number} context In tokens.
 * @property {import("./protocol.js").ChatOptions} sampling What its authors recommend.
 */

/** @typedef {"unsupported" | "empty" | "loading" | "ready" | "answering"} State */

const LINK = "link";
const FILE = "file";
const SUGGESTIONS = [
  "Why is the sky blue?",
  "Write a short poem about rain on a tin roof.",
  "Explain recursion to a ten-year-old.",
];
const NEAR_THE_END_PX = 48;

/**
 * @template {HTMLElement} E
 * @param {string} name A `data-testid` or `data-element`.
 * @param {new () => E} type
 * @returns {E}
 */
function element(name, type) {
  const found = document.querySelector(`[data-testid="${name}"], [data-element="${name}"]`);
  if (!(found instanceof type)) throw new TypeError(`the page has no ${type.name} "${name}"`);
  return found;
}

export class View {
  model = element("model", HTMLSelectElement);
  loader = element("loader", HTMLFormElement);
  cancelLoad = element("cancel-load", HTMLButtonElement);
  changeModel = element("change-model", HTMLButtonElement);
  composer = element("composer", HTMLFormElement);
  prompt = element("prompt", HTMLTextAreaElement);
  stop = element("stop", HTMLButtonElement);
  newChat = element("new-chat", HTMLButtonElement);
  #load = element("load", HTMLButtonElement);
  #send = element("send", HTMLButtonElement);
  #status = element("status", HTMLElement);
  #error = element("error", HTMLElement);
  #stats = element("stats", HTMLElement);
  #log = element("log", HTMLElement);
  #about = element("about", HTMLElement);
  #link = element("model-url", HTMLInputElement);
  #file = element("model-file", HTMLInputElement);
  #progress = element("progress", HTMLProgressElement);
  #temperature = element("temperature", HTMLInputElement);
  #maxTokens = element("max-tokens", HTMLInputElement);

  constructor() {
    this.model.addEventListener("change", () => this.#showModelInput());
    this.prompt.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      if (!this.#send.disabled) this.composer.requestSubmit();
    });
  }

  /**
   * @param {CatalogEntry[]} catalog
   * @param {string | null} selected An id of the catalog or an address.
   */
  showCatalog(catalog, selected) {
    const known = catalog.some(({ id }) => id === selected);
    this.model.replaceChildren(
      ...catalog.map(({ id, title, bytes }) => new Option(`${title} (${formatBytes(bytes)})`, id)),
      new Option("From an address…", LINK),
      new Option("From this computer…", FILE),
    );
    this.model.value = known && selected ? selected : selected ? LINK : this.model.options[0].value;
    if (selected && !known) this.#link.value = selected;
    this.#showModelInput();
  }

  #showModelInput() {
    for (const [name, input] of /** @type {const} */ ([
      [LINK, this.#link],
      [FILE, this.#file],
    ])) {
      element(name, HTMLElement).hidden = this.model.value !== name;
      input.required = this.model.value === name;
    }
  }

  /** What the visitor picked: an id of the catalog, an address or a file. */
  get selection() {
    if (this.model.value === LINK) return { url: this.#link.value };
    if (this.model.value === FILE) return { file: this.#file.files?.[0] };
    return { id: this.model.value };
  }

  /** @param {import("./protocol.js").ChatOptions} preset From the address. */
  presetSampling({ temperature, max_tokens }) {
    this.#temperature.value = temperature?.toString() ?? "";
    this.#maxTokens.value = max_tokens?.toString() ?? "";
  }

  /** @param {import("./protocol.js").ChatOptions} defaults Shown where the visitor enters nothing. */
  showSamplingDefaults({ temperature, max_tokens }) {
    this.#temperature.placeholder = temperature?.toString() ?? "";
    this.#maxTokens.placeholder = max_tokens?.toString() ?? "";
  }

  /** What the visitor entered. @returns {import("./protocol.js").ChatOptions} */
  get sampling() {
    return {
      ...(this.#temperature.value && { temperature: this.#temperature.valueAsNumber }),
      ...(this.#maxTokens.value && { max_tokens: this.#maxTokens.valueAsNumber }),
    };
  }

  /**
   * @param {State} state
   * @param {string} status
   */
  setState(state, status) {
    document.body.dataset.state = state;
    this.setStatus(status);
    const loading = state === "loading";
    this.#load.disabled = state !== "empty";
    this.#load.hidden = loading;
    this.cancelLoad.hidden = !loading;
    for (const input of [this.model, this.#link, this.#file]) input.disabled = loading;
    element("loading", HTMLElement).hidden = !loading;
    this.#send.disabled = state !== "ready";
    this.#send.hidden = state === "answering";
    this.stop.hidden = state !== "answering";
    this.changeModel.disabled = state !== "ready";
    this.#showSuggestions(state === "ready");
  }

  /** @param {string} status */
  setStatus(status) {
    if (this.#status.textContent !== status) this.#status.textContent = status;
  }

  /** @param {import("./protocol.js").LoadProgress} progress */
  showProgress(progress) {
    this.setStatus(`${formatPhase(progress.phase)}…`);
    if (progress.total) this.#progress.value = progress.done / progress.total;
    else this.#progress.removeAttribute("value");
    element("progress-text", HTMLElement).textContent = formatProgress(progress);
  }

  /**
   * @param {string} name
   * @param {import("./protocol.js").ModelInfo} model
   * @param {import("./protocol.js").DeviceInfo} device
   */
  showModel(name, model, device) {
    this.#about.textContent = [
      name,
      `${formatCount(model.parameters)} parameters`,
      `${formatBytes(model.deviceBytes)} on ${device.adapter || device.backend}`,
    ].join(" · ");
  }

  /** @param {{ code: string, message: string } | null} error */
  showError(error) {
    this.#error.hidden = error === null;
    this.#error.replaceChildren();
    delete this.#error.dataset.code;
    if (!error) return;
    const code = document.createElement("code");
    code.textContent = error.code;
    this.#error.append(error.message, code);
    this.#error.dataset.code = error.code;
  }

  /** @param {string} text */
  addUserMessage(text) {
    this.#showSuggestions(false);
    this.#addMessage("user").textContent = text;
    this.#log.scrollTop = this.#log.scrollHeight;
  }

  /** An answer that is still being written. */
  addAnswer() {
    const message = this.#addMessage("assistant");
    message.setAttribute("aria-busy", "true");
    let atEnd = true;
    const follow = () => {
      if (atEnd) this.#log.scrollTop = this.#log.scrollHeight;
    };
    const onScroll = () => {
      atEnd = this.#log.scrollHeight - this.#log.scrollTop - this.#log.clientHeight < NEAR_THE_END_PX;
    };
    this.#log.addEventListener("scroll", onScroll);
    const markdown = new MarkdownView(message, follow);
    follow();
    return {
      /** @param {string} text All of it so far. */
      update: (text) => markdown.update(text),
      /**
       * @param {string} text
       * @param {import("./protocol.js").ChatResult["finish_reason"] | "error"} reason
       */
      finish: (text, reason) => {
        markdown.finish(text);
        message.removeAttribute("aria-busy");
        message.dataset.finish = reason;
        follow();
        this.#log.removeEventListener("scroll", onScroll);
      },
    };
  }

  /** @param {"user" | "assistant"} role */
  #addMessage(role) {
    const message = document.createElement("article");
    message.className = `message ${role}`;
    message.dataset.testid = `message-${role}`;
    message.setAttribute("aria-label", role === "user" ? "You" : "Answer");
    this.#log.append(message);
    this.newChat.disabled = false;
    return message;
  }

  clearConversation() {
    this.#log.replaceChildren();
    this.clearStats();
    this.newChat.disabled = true;
  }

  /** @param {boolean} wanted */
  #showSuggestions(wanted) {
    this.#log.querySelector(".suggestions")?.remove();
    if (!wanted || this.#log.childElementCount > 0) return;
    const suggestions = document.createElement("div");
    suggestions.className = "suggestions";
    for (const text of SUGGESTIONS) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = text;
      button.addEventListener("click", () => {
        this.prompt.value = text;
        this.composer.requestSubmit();
      });
      suggestions.append(button);
    }
    this.#log.append(suggestions);
  }

  /**
   * @param {{ tokens: number, firstTokenSeconds?: number, tokensPerSecond?: number, promptTokens?: number, cachedTokens?: number }} figures
   */
  showStats({ tokens, firstTokenSeconds, tokensPerSecond, promptTokens, cachedTokens }) {
    const parts = [`${tokens} ${tokens === 1 ? "token" : "tokens"}`];
    if (tokensPerSecond) parts.push(formatRate(tokensPerSecond));
    if (firstTokenSeconds) parts.push(`first token after ${formatDuration(firstTokenSeconds)}`);
    if (promptTokens)
      parts.push(`prompt ${promptTokens} tokens${cachedTokens ? `, ${cachedTokens} of them kept` : ""}`);
    this.#stats.textContent = parts.join(" · ");
    this.#stats.dataset.tokens = String(tokens);
  }

  clearStats() {
    this.#stats.textContent = "";
    delete this.#stats.dataset.tokens;
  }

  /** Puts the cursor where the visitor will write next; not on touch screens, where that opens the keyboard. */
  focusPrompt() {
    if (matchMedia("(pointer: fine)").matches) this.prompt.focus();
  }
}
