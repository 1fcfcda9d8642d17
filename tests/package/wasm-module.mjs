/** Reads just enough of a WebAssembly module to see how its exported functions begin. */

const SECTION = { type: 1, import: 2, function: 3, export: 7, code: 10 };
const FUNCTION = 0;
const CALL = 0x10;

/**
 * The functions that exports call before they do anything else, when these take and return nothing: for each, the
 * names of those exports. A linker that wraps every export in a run of the static constructors makes them all begin
 * with the same one.
 * @param {Uint8Array} bytes
 * @returns {{ exported: number, firstCalls: Map<number, string[]> }}
 */
export function firstCallsOfExports(bytes) {
  const sections = readSections(bytes);
  const types = readTypes(new Reader(sections.get(SECTION.type)));
  const imported = readImportedFunctions(new Reader(sections.get(SECTION.import)));
  const defined = new Reader(sections.get(SECTION.function)).vector((r) => r.u32());
  const typeOf = [...imported, ...defined].map((index) => types[index]);
  const bodies = new Reader(sections.get(SECTION.code)).vector((r) => r.bytes(r.u32()));

  const exports = new Reader(sections.get(SECTION.export))
    .vector((r) => ({ name: r.name(), kind: r.byte(), index: r.u32() }))
    .filter(({ kind, index }) => kind === FUNCTION && index >= imported.length);
  /** @type {Map<number, string[]>} */
  const firstCalls = new Map();
  for (const { name, index } of exports) {
    const body = new Reader(bodies[index - imported.length]);
    body.vector((r) => [r.u32(), r.byte()]);
    if (body.byte() !== CALL) continue;
    const callee = body.u32();
    if (typeOf[callee] !== "[] -> []") continue;
    firstCalls.set(callee, [...(firstCalls.get(callee) ?? []), name]);
  }
  return { exported: exports.length, firstCalls };
}

/** @param {Uint8Array} bytes @returns {Map<number, Uint8Array>} */
function readSections(bytes) {
  const sections = new Map();
  const module = new Reader(bytes.subarray(8));
  while (!module.atEnd) sections.set(module.byte(), module.bytes(module.u32()));
  return sections;
}

/** @param {Reader} types @returns {string[]} */
function readTypes(types) {
  return types.vector((r) => {
    const form = r.byte();
    if (form !== 0x60) throw new Error(`type form ${form} is not a function`);
    const [parameters, results] = [r.vector((v) => v.byte()), r.vector((v) => v.byte())];
    return `[${parameters}] -> [${results}]`;
  });
}

/** @param {Reader} imports @returns {number[]} The types of those imports that are functions. */
function readImportedFunctions(imports) {
  return imports
    .vector((r) => {
      r.name();
      r.name();
      const kind = r.byte();
      if (kind === FUNCTION) return r.u32();
      if (kind === 1) r.byte(); // a table begins with the type of its elements
      if (kind === 3) return void r.bytes(2); // a global: its type and whether it changes
      const flags = r.u32();
      r.u32();
      if (flags & 1) r.u32();
    })
    .filter((type) => type !== undefined);
}

class Reader {
  #at = 0;
  #bytes;

  /** @param {Uint8Array} [bytes] A section that is left out reads like an empty one. */
  constructor(bytes = Uint8Array.of(0)) {
    this.#bytes = bytes;
  }

  get atEnd() {
    return this.#at >= this.#bytes.length;
  }

  byte() {
    return this.#bytes[this.#at++];
  }

  /** LEB128, as all integers of the format. */
  u32() {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = this.byte();
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value >>> 0;
    }
  }

  /** @param {number} length */
  bytes(length) {
    return this.#bytes.subarray(this.#at, (this.#at += length));
  }

  name() {
    return new TextDecoder().decode(this.bytes(this.u32()));
  }

  /**
   * @template T
   * @param {(reader: Reader) => T} item
   * @returns {T[]}
   */
  vector(item) {
    return Array.from({ length: this.u32() }, () => item(this));
  }
}
