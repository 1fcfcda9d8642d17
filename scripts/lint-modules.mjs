/**
 * Keeps the crate's one-way rule: a module uses those to its left in ORDER, never to its right. Reads every `crate::`
 * and `super::` path in crate/src, in tests and braces as well, and names the line of each that goes the wrong way.
 */

import { readFile, readdir } from "node:fs/promises";
import { join, relative, sep } from "node:path";
import { isMain, root } from "./lib/paths.mjs";
import { Failure, main } from "./lib/run.mjs";

export const ORDER = [
  "test_fixtures",
  "error",
  "store",
  "format",
  "quant",
  "tokenizer",
  "chat",
  "kernels",
  "device",
  "models",
  "generation",
  "environment",
  "inference",
  "web",
];

/**
 * @param {string} folder The crate's src/.
 * @returns {Promise<string[]>} One line for each path that breaks the rule.
 */
export async function checkModules(folder) {
  const entries = await readdir(folder, { withFileTypes: true, recursive: true });
  const files = entries
    .filter((entry) => entry.isFile() && entry.name.endsWith(".rs"))
    .map((entry) => join(entry.parentPath, entry.name))
    .sort();
  const problems = await Promise.all(
    files.map(async (file) => checkFile(relative(folder, file), await readFile(file, "utf8"))),
  );
  return problems.flat();
}

/**
 * @param {string} file Relative to src/.
 * @param {string} source
 * @returns {string[]}
 */
export function checkFile(file, source) {
  const modulePath = modulePathOf(file);
  // lib.rs is the map of the crate, and a binary is a crate of its own.
  if (modulePath.length === 0 || modulePath[0] === "bin") return [];
  const [module] = modulePath;
  const place = ORDER.indexOf(module);
  if (place < 0) return [`${file}:1: module \`${module}\` has no place in the order of scripts/lint-modules.mjs`];

  return pathsIn(blank(source), modulePath).flatMap(({ line, name }) => {
    const target = ORDER.indexOf(name);
    if (target >= 0 && target <= place) return [];
    return target < 0
      ? [`${file}:${line}: \`crate::${name}\` is no module of the order: name the module that defines it`]
      : [`${file}:${line}: \`${module}\` may not use \`${name}\`, which is to its right`];
  });
}

/** `kernels/matmul/mod.rs` is [`kernels`, `matmul`]. @param {string} file */
function modulePathOf(file) {
  const parts = file.replace(/\.rs$/, "").split(sep);
  return ["mod", "lib", "main"].includes(parts[parts.length - 1]) ? parts.slice(0, -1) : parts;
}

/**
 * Comments, strings and character literals as spaces, so that only code is left and every line keeps its number.
 * @param {string} source
 */
function blank(source) {
  const skip =
    /\/\/.*|\/\*[^]*?\*\/|\bb?r(#*)"[^]*?"\1|\bb?"(?:\\[^]|[^"\\])*"|"(?:\\[^]|[^"\\])*"|'(?:\\[^']+|\\'|[^\\'])'/g;
  return source.replace(skip, (text) => text.replace(/[^\n]/g, " "));
}

/**
 * The first names of all paths from the root of the crate, whether written `crate::name` or `super::…::name`.
 * @param {string} code
 * @param {string[]} modulePath Of the file.
 * @returns {{ line: number, name: string }[]}
 */
function pathsIn(code, modulePath) {
  const found = [];
  /** For each open brace, whether it is that of an inline module. @type {boolean[]} */
  const open = [];
  const token = /\bmod\s+\w+\s*\{|[{}]|\bcrate\s*::\s*|\bsuper\s*::\s*(?:super\s*::\s*)*/g;
  for (let match = token.exec(code); match; match = token.exec(code)) {
    const [text] = match;
    if (text === "}") open.pop();
    else if (text.endsWith("{")) open.push(text !== "{");
    else {
      const depth = modulePath.length + open.filter(Boolean).length;
      const ups = text.startsWith("super") ? text.split("super").length - 1 : depth;
      if (ups < depth) continue;
      const line = code.slice(0, match.index).split("\n").length;
      for (const name of firstNames(code.slice(token.lastIndex))) found.push({ line, name });
    }
  }
  return found;
}

/**
 * What `rest` of a path begins with: one name, or those of a group such as `{error::Error, quant::{Block, Q4}}`.
 * @param {string} rest
 */
function firstNames(rest) {
  if (!rest.startsWith("{")) return [/^\w+/.exec(rest)?.[0] ?? rest.charAt(0)];
  const names = [];
  let depth = 0;
  let previous = "";
  for (const [text] of rest.matchAll(/[{},]|\w+/g)) {
    if (depth === 1 && /\w/.test(text) && /[{,]/.test(previous)) names.push(text);
    if (text === "{") depth++;
    if (text === "}" && --depth === 0) break;
    previous = text;
  }
  return names;
}

if (isMain(import.meta.url)) {
  await main(async () => {
    const problems = await checkModules(root("crate/src"));
    if (problems.length) throw new Failure(problems.map((problem) => `crate/src/${problem}`).join("\n"));
    console.log("Every module uses only those to its left.");
  });
}
