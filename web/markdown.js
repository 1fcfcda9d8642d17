/**
 * Markdown that grows: an answer is rendered while it is written. Only blocks that changed are rendered again, at
 * most once a frame, and never so often that rendering takes most of the time.
 *
 * Whatever a model writes is untrusted. HTML in it is shown as the text that it is and images as their description, so
 * that nothing is loaded from elsewhere; DOMPurify then lets through only plain markup.
 */

import DOMPurify from "./vendor/purify.js";
import { marked } from "./vendor/marked.js";

const SANITIZE = {
  USE_PROFILES: { html: true },
  FORBID_TAGS: ["style", "form", "input", "button", "select", "textarea", "img", "picture", "audio", "video", "map"],
  FORBID_ATTR: ["style", "class", "id", "name", "background", "srcset"],
  ALLOW_DATA_ATTR: false,
  RETURN_DOM_FRAGMENT: /** @type {const} */ (true),
};
const HIDDEN_TAB_MS = 250;
/** After a rendering that took t, wait for this many t. */
const REST = 3;

marked.use({
  gfm: true,
  breaks: true,
  renderer: {
    html: ({ text }) => (/^<br\s*\/?>$/i.test(text) ? "<br>" : escape(text)),
    image: ({ text }) => escape(text),
  },
});

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName !== "A") return;
  if (!/^(https?|mailto):/i.test(node.getAttribute("href") ?? "")) node.removeAttribute("href");
  node.setAttribute("target", "_blank");
  node.setAttribute("rel", "noopener noreferrer");
});

export class MarkdownView {
  #element;
  /** @type {{ raw: string, nodes: ChildNode[] }[]} */
  #blocks = [];
  #text = "";
  /** Takes back the rendering that is planned, if one is. @type {(() => void) | undefined} */
  #unplan;
  #restUntil = 0;
  #onRender;

  /**
   * @param {HTMLElement} element Its content belongs to this view.
   * @param {() => void} [onRender] Called after every change of the content.
   */
  constructor(element, onRender = () => {}) {
    this.#element = element;
    this.#onRender = onRender;
  }

  /** @param {string} text The whole text so far. */
  update(text) {
    this.#text = text;
    this.#unplan ??= plan(this.#restUntil - performance.now(), () => {
      this.#unplan = undefined;
      this.#render();
    });
  }

  /** @param {string} text The whole text; later definitions may have changed what earlier blocks mean. */
  finish(text) {
    this.#unplan?.();
    this.#unplan = undefined;
    this.#text = text;
    this.#blocks = [];
    this.#element.replaceChildren();
    this.#render();
  }

  #render() {
    const start = performance.now();
    const tokens = marked.lexer(this.#text);
    let same = 0;
    while (same < this.#blocks.length && same < tokens.length && this.#blocks[same].raw === tokens[same].raw) same++;
    for (const { nodes } of this.#blocks.splice(same)) for (const node of nodes) node.remove();
    for (const token of tokens.slice(same)) {
      const fragment = DOMPurify.sanitize(marked.parser([token]), SANITIZE);
      this.#blocks.push({ raw: token.raw, nodes: [...fragment.childNodes] });
      this.#element.append(fragment);
    }
    const end = performance.now();
    this.#restUntil = end + REST * (end - start);
    this.#onRender();
  }
}

/** @param {string} text */
function escape(text) {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

/**
 * The next frame, or after a rest; in a hidden tab, which gets no frames, a timer.
 * @param {number} rest In milliseconds.
 * @param {() => void} work
 * @returns {() => void} Takes it back.
 */
function plan(rest, work) {
  if (document.hidden || rest > 16) {
    const timer = setTimeout(work, document.hidden ? Math.max(rest, HIDDEN_TAB_MS) : rest);
    return () => clearTimeout(timer);
  }
  // A tab that is hidden after this was planned gets its frame when it is shown again, or `finish` comes first.
  const frame = requestAnimationFrame(work);
  return () => cancelAnimationFrame(frame);
}
