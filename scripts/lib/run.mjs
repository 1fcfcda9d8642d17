/** Runs other programs, and says what is going on in a way that can be read while it happens. */

import { spawn, spawnSync } from "node:child_process";
import { delimiter } from "node:path";
import { cargoBin, root } from "./paths.mjs";

/** Something that went wrong and whose message is all that there is to say about it. */
export class Failure extends Error {}

/** Runs a script's story, and ends the process with its verdict. @param {() => Promise<void>} story */
export async function main(story) {
  try {
    await story();
  } catch (error) {
    console.error(error instanceof Failure ? `\n${error.message}` : error);
    process.exitCode = 1;
  }
}

/**
 * Announces a step.
 * @param {string} title
 * @param {string} [duration] How long it is likely to take.
 */
export function step(title, duration) {
  console.log(`\n▸ ${title}${duration ? ` (${duration})` : ""}`);
}

/** @param {NodeJS.ProcessEnv} [extra] */
function environment(extra) {
  return { ...process.env, PATH: [cargoBin(), process.env.PATH].join(delimiter), ...extra };
}

/**
 * What a program prints, or null where it cannot be started or fails.
 * @param {string} command
 * @param {string[]} args
 */
export function capture(command, args) {
  const { status, stdout } = spawnSync(command, args, { cwd: root(), env: environment(), encoding: "utf8" });
  return status === 0 ? stdout.trim() : null;
}

/**
 * @typedef {object} RunOptions
 * @property {string} [cwd]
 * @property {NodeJS.ProcessEnv} [env] Beside the environment of this process.
 * @property {(text: string) => void} [onOutput] Sees what the program prints to standard output.
 */

/**
 * Runs a program to its end, with its output shown.
 * @param {string} command
 * @param {string[]} args
 * @param {RunOptions} [options]
 * @returns {Promise<void>}
 */
export function run(command, args, { cwd = root(), env, onOutput } = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      cwd,
      env: environment(env),
      stdio: ["ignore", onOutput ? "pipe" : "inherit", "inherit"],
    });
    child.stdout?.setEncoding("utf8").on("data", (text) => {
      process.stdout.write(text);
      onOutput?.(text);
    });
    child.on("error", (error) => reject(new Failure(`${command} cannot be started: ${error.message}`)));
    child.on("close", (code, signal) => {
      if (code === 0) resolve();
      else reject(new Failure(`${[command, ...args].join(" ")} ended with ${signal ?? `exit code ${code}`}.`));
    });
  });
}
