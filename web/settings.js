/**
 * What the address presets: `?model=ID&temperature=0&max_tokens=48&autoload=1`, and the other sampling options by
 * their names. Values that are not numbers are ignored.
 */

const NUMBERS = /** @type {const} */ ([
  "temperature",
  "top_k",
  "top_p",
  "min_p",
  "repetition_penalty",
  "seed",
  "max_tokens",
]);

/**
 * @param {string} search The query part of the address.
 * @returns {{ model: string | null, autoload: boolean, sampling: import("./protocol.js").ChatOptions }}
 */
export function readSettings(search) {
  const query = new URLSearchParams(search);
  /** @type {import("./protocol.js").ChatOptions} */
  const sampling = {};
  for (const name of NUMBERS) {
    const text = query.get(name)?.trim();
    if (text && Number.isFinite(Number(text))) sampling[name] = Number(text);
  }
  return { model: query.get("model"), autoload: ["1", "true"].includes(query.get("autoload") ?? ""), sampling };
}
