/**
 * `npm run bench`: Hearth's built page in Chromium, and beside it llama.cpp, wllama and transformers.js on the same model and
 * prompts. Every repetition runs all of them, one after the other, so that whatever else the machine does meets them
 * alike. Prints one table of medians, and writes everything to a JSON file.
 *
 *     npm run bench -- --reps 3 --only 'hearth|wllama' --out bench.json
 */

import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { cpus, loadavg } from "node:os";
import { dirname, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { measure } from "../scripts/build.mjs";
import { isMain, root } from "../scripts/lib/paths.mjs";
import { Failure, main, step } from "../scripts/lib/run.mjs";
import { fetchModel } from "../scripts/model.mjs";
import { FOLDERS, locate, serve } from "../scripts/serve.mjs";
import { readPrompts } from "./prompts.mjs";
import { CACHE, NODE_MODULES, ONNX_MODELS, openCache, setUp } from "./rivals.mjs";
import { ROWS } from "./rows.mjs";
import { agreement, formatTable, summarize } from "./table.mjs";

/** Where the first part of an address leads. */
const SITE = { ...FOLDERS, bench: root("bench"), node_modules: NODE_MODULES, onnx: ONNX_MODELS };
/** Without these a page gets no threads. */
const ISOLATED = {
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Embedder-Policy": "require-corp",
};

/** @param {string[]} [args] */
async function bench(args = process.argv.slice(2)) {
  const { reps, only, out } = readOptions(args);
  const rows = ROWS.filter(({ name }) => only.test(name));
  if (rows.length === 0)
    throw new Failure(`--only matches none of:\n${ROWS.map(({ name }) => `  ${name}`).join("\n")}`);
  if (!existsSync(root("pkg/hearth.js"))) throw new Failure("pkg/ is not built yet: run `npm run build` first.");
  await openCache();
  const model = await fetchModel();
  const prompts = await readPrompts();
  const missing = await setUp(
    rows.flatMap(({ needs }) => needs),
    model,
  );
  const server = await serve({ port: 0, folders: SITE, headers: ISOLATED });
  const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());

  /** @type {import("./table.mjs").Attempt[]} */
  const attempts = [];
  try {
    for (let repetition = 1; repetition <= reps; repetition++) {
      step(`Repetition ${repetition} of ${reps}`);
      for (const row of rows) {
        const load = loadavg()[0];
        const start = performance.now();
        const outcome = await attempt(row, missing, {
          model,
          site: `http://localhost:${port}`,
          prompts: row.prompts.map((name) => /** @type {import("./prompts.mjs").Prompt} */ (prompts.get(name))),
          newTokens: row.newTokens,
        });
        attempts.push({ row: row.name, repetition, load, ...outcome });
        const seconds = Math.round((performance.now() - start) / 1000);
        console.log(`  ${outcome.error ? "✖" : "✔"} ${row.name} (${seconds} s, load before it ${load.toFixed(1)})`);
        // What is there after an hour should survive whatever comes then.
        await write(out, rows, attempts);
      }
    }
  } finally {
    server.closeAllConnections();
    server.close();
  }
  console.log(`\n${formatTable(summarize(rows, attempts))}\n\nEverything measured is in ${out}`);
  if (attempts.every(({ error }) => error)) throw new Failure("Nothing could be measured.");
}

/** @param {string[]} args */
function readOptions(args) {
  const { values } = parseArgs({
    args,
    options: {
      reps: { type: "string", default: "3" },
      only: { type: "string", default: "" },
      out: { type: "string", default: join(CACHE, "results.json") },
    },
  });
  const reps = Number(values.reps);
  if (!Number.isInteger(reps) || reps < 1) throw new Failure(`--reps ${values.reps} is no number of repetitions`);
  try {
    return { reps, only: new RegExp(values.only, "i"), out: resolve(values.out) };
  } catch (error) {
    throw new Failure(`--only ${values.only}: ${error instanceof Error ? error.message : error}`);
  }
}

/**
 * @param {import("./rows.mjs").Row} row
 * @param {Map<import("./rivals.mjs").Need, string>} missing
 * @param {import("./rows.mjs").Context} context
 * @returns {Promise<Pick<import("./table.mjs").Attempt, "measurement" | "error">>}
 */
async function attempt(row, missing, context) {
  const failed = row.needs.find((need) => missing.has(need));
  if (failed) return { error: `${failed} could not be set up: ${missing.get(failed)}` };
  try {
    const measurement = await row.run(context);
    for (const { name, reference } of context.prompts) {
      measurement.runs[name].agreement = agreement(measurement.runs[name].text, reference);
    }
    if (measurement.wasm) measurement.wasmSizes = await wasmSizes(measurement.wasm);
    return { measurement };
  } catch (error) {
    return { error: error instanceof Error ? error.message.split("\n")[0] : String(error) };
  }
}

/**
 * What the visitor downloads, added up. Compressing takes a while, so it is remembered.
 * @param {string[]} addresses
 */
async function wasmSizes(addresses) {
  const memory = join(CACHE, "wasm-sizes.json");
  /** @type {Record<string, { raw: number, brotli: number }>} */
  const known = await readFile(memory, "utf8").then(JSON.parse, () => ({}));
  const total = { raw: 0, brotli: 0 };
  for (const address of addresses) {
    const file = /** @type {string} */ (locate(address, SITE));
    const hash = createHash("sha256")
      .update(await readFile(file))
      .digest("hex");
    known[hash] ??= await measure(file);
    total.raw += known[hash].raw;
    total.brotli += known[hash].brotli;
  }
  await writeFile(memory, JSON.stringify(known));
  return total;
}

/**
 * @param {string} out
 * @param {import("./rows.mjs").Row[]} rows
 * @param {import("./table.mjs").Attempt[]} attempts
 */
async function write(out, rows, attempts) {
  const machine = {
    cores: cpus().length,
    processor: cpus()[0]?.model,
    platform: process.platform,
    node: process.version,
  };
  await mkdir(dirname(out), { recursive: true });
  await writeFile(out, JSON.stringify({ machine, medians: summarize(rows, attempts), attempts }, null, 1) + "\n");
}

if (isMain(import.meta.url)) await main(bench);
