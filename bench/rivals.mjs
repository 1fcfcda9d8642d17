/**
 * Installs what Hearth is compared with, into a folder outside the checkout: npm packages, two Python environments, and
 * the ONNX files made from the GGUF. What is there already, in the same versions, is not installed again.
 */

import { existsSync } from "node:fs";
import { mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join, resolve } from "node:path";
import { root } from "../scripts/lib/paths.mjs";
import { Failure, capture, run, step } from "../scripts/lib/run.mjs";

export const CACHE = resolve(process.env.HEARTH_BENCH_CACHE ?? join(homedir(), ".cache/hearth-bench"));
/** Where the pages find npm packages, and transformers.js its models. */
export const NODE_MODULES = join(CACHE, "npm/node_modules");
export const ONNX_MODELS = join(CACHE, "onnx-models");

const NPM_PACKAGES = { "@huggingface/transformers": "4.3.2", "@wllama/wllama": "3.13.0" };
const LLAMA_CPP = ["llama-cpp-python==0.3.36"];
const ONNX_TOOLS = [
  "accelerate==1.15.0",
  "gguf==0.19.0",
  "onnx==1.23.2",
  "onnx-ir==1.1.0",
  "onnxruntime==1.32.0",
  "onnxruntime-genai==0.18.0",
  "safetensors==0.8.0",
  "torch==2.15.0",
  "transformers==5.24.0",
];

/** Says that a folder is the bench's, or that one in it is complete. */
const STAMP = "hearth-bench.json";

/** @typedef {"npm" | "llama.cpp" | "onnx"} Need */

/** @type {Record<Need, (model: string) => Promise<void>>} */
const INSTALLERS = { npm: installPackages, "llama.cpp": installLlamaCpp, onnx: makeOnnxModels };

/** Makes the cache folder, or takes the one from last time; what is in it may be replaced, so it must be nobody else's. */
export async function openCache() {
  await mkdir(CACHE, { recursive: true });
  const names = await readdir(CACHE);
  if (names.length > 0 && !names.includes(STAMP)) {
    throw new Failure(`${CACHE} has other things in it. Set HEARTH_BENCH_CACHE to a new folder, or empty this one.`);
  }
  await writeFile(join(CACHE, STAMP), "{}\n");
}

/**
 * Sets up what is needed, one after the other. What cannot be had does not keep the rest from it.
 * @param {Iterable<Need>} needs The cache folder is open.
 * @param {string} model The GGUF file.
 * @returns {Promise<Map<Need, string>>} Why, for each that failed.
 */
export async function setUp(needs, model) {
  /** @type {Map<Need, string>} */
  const failures = new Map();
  for (const need of new Set(needs)) {
    try {
      await INSTALLERS[need](model);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      console.log(`  That did not work: ${reason}`);
      failures.set(need, reason);
    }
  }
  return failures;
}

/** The Python that has llama-cpp-python. */
export function llamaCppPython() {
  return pythonOf("llama.cpp");
}

async function installPackages() {
  const folder = join(CACHE, "npm");
  await once(folder, NPM_PACKAGES, async () => {
    step("Installing wllama and transformers.js", "about half a minute");
    await mkdir(folder, { recursive: true });
    await writeFile(join(folder, "package.json"), JSON.stringify({ private: true, dependencies: NPM_PACKAGES }));
    await run("npm", ["install", "--ignore-scripts", "--no-audit", "--no-fund"], { cwd: folder });
  });
}

async function installLlamaCpp() {
  await installPython("llama.cpp", LLAMA_CPP, "it is compiled, which takes 8 to 20 minutes");
}

/** @param {string} model */
async function makeOnnxModels(model) {
  await installPython("onnx", ONNX_TOOLS, "PyTorch among them: several gigabytes, 3 to 10 minutes");
  const script = root("bench/python/export_onnx.py");
  await once(ONNX_MODELS, { tools: ONNX_TOOLS, script: await readFile(script, "utf8") }, async () => {
    step("Making the ONNX files for transformers.js", "2 minutes");
    await run(pythonOf("onnx"), [script, model, ONNX_MODELS]);
  });
}

/**
 * @param {string} name
 * @param {string[]} requirements
 * @param {string} duration
 */
async function installPython(name, requirements, duration) {
  const folder = join(CACHE, name);
  await once(folder, requirements, async () => {
    step(`Installing ${requirements.join(", ")}`, duration);
    const python = ["python3", "python"].find((command) => capture(command, ["--version"]) !== null);
    if (!python) throw new Failure("there is no Python 3 here");
    await run(python, ["-m", "venv", folder]);
    await run(pythonOf(name), ["-m", "pip", "install", "--quiet", ...requirements]);
  });
}

/** @param {string} name Of an environment. */
function pythonOf(name) {
  return join(CACHE, name, process.platform === "win32" ? "Scripts/python.exe" : "bin/python");
}

/**
 * Fills a folder from nothing, unless it was filled by the same recipe.
 * @param {string} folder
 * @param {unknown} recipe
 * @param {() => Promise<void>} fill
 */
async function once(folder, recipe, fill) {
  const stamp = join(folder, STAMP);
  const wanted = JSON.stringify(recipe);
  if (existsSync(stamp) && (await readFile(stamp, "utf8")) === wanted) return;
  await rm(folder, { recursive: true, force: true });
  await fill();
  await writeFile(stamp, wanted);
}
