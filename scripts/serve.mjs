/**
 * Serves the page for development: index.html at the root, and web/, pkg/ and models/ under their own names, so that
 * the addresses are those of the repository. `--port N` chooses the port, `--host NAME` the interface.
 */

import { createReadStream, existsSync } from "node:fs";
import { stat } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join, sep } from "node:path";
import { pipeline } from "node:stream";
import { parseArgs } from "node:util";
import { isMain, root } from "./lib/paths.mjs";
import { Failure, main } from "./lib/run.mjs";

/** Where the first part of an address leads. */
export const FOLDERS = { web: root("web"), pkg: root("pkg"), models: root("models") };
const INDEX = root("web/index.html");

/** @type {Record<string, string>} */
const MIME = {
  ".css": "text/css; charset=utf-8",
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".json": "application/json",
  ".mjs": "text/javascript; charset=utf-8",
  ".png": "image/png",
  ".svg": "image/svg+xml",
  ".ts": "text/plain; charset=utf-8",
  ".txt": "text/plain; charset=utf-8",
  ".wasm": "application/wasm",
};

/**
 * @param {object} options
 * @param {number} options.port 0 takes a free one.
 * @param {string} [options.host]
 * @param {Record<string, string>} [options.folders]
 * @param {Record<string, string>} [options.headers] Sent with every answer.
 * @returns {Promise<import("node:http").Server>} Listening.
 */
export function serve({ port, host = "localhost", folders = FOLDERS, headers = {} }) {
  const server = createServer((request, response) => {
    response.setHeaders(new Map(Object.entries(headers)));
    answer(request, response, folders).catch((error) => {
      console.error(error);
      if (!response.headersSent) refuse(response, 500, "Internal server error");
      else response.destroy();
    });
  });
  return new Promise((resolve, reject) => {
    server.once("error", (/** @type {NodeJS.ErrnoException} */ error) =>
      reject(
        error.code === "EADDRINUSE"
          ? new Failure(`Port ${port} is taken. Choose another: npm run serve -- --port ${port + 1}`)
          : error,
      ),
    );
    server.listen(port, host, () => resolve(server));
  });
}

/**
 * @param {import("node:http").IncomingMessage} request
 * @param {import("node:http").ServerResponse} response
 * @param {Record<string, string>} folders
 */
async function answer(request, response, folders) {
  if (request.method !== "GET" && request.method !== "HEAD") {
    response.setHeader("Allow", "GET, HEAD");
    return refuse(response, 405, "Only GET and HEAD");
  }
  const { pathname } = new URL(request.url ?? "/", "http://localhost");
  if (pathname === "/web/" || pathname === "/web/index.html") {
    response.writeHead(302, { Location: "/" }).end();
    return;
  }
  const path = locate(pathname, folders);
  const file = path === null ? null : await stat(path).catch(() => null);
  if (path === null || !file?.isFile()) return refuse(response, 404, "There is no such file");

  const etag = `"${file.size.toString(36)}-${Math.round(file.mtimeMs).toString(36)}"`;
  response.setHeader("Content-Type", MIME[extname(path)] ?? "application/octet-stream");
  response.setHeader("X-Content-Type-Options", "nosniff");
  response.setHeader("Cache-Control", "no-cache");
  response.setHeader("ETag", etag);
  response.setHeader("Accept-Ranges", "bytes");
  if (request.headers["if-none-match"] === etag) {
    response.writeHead(304).end();
    return;
  }

  const usable = (request.headers["if-range"] ?? etag) === etag;
  const range = usable ? parseRange(request.headers.range, file.size) : null;
  if (range === "unsatisfiable") {
    response.setHeader("Content-Range", `bytes */${file.size}`);
    return refuse(response, 416, "There are no such bytes");
  }
  const { start, end } = range ?? { start: 0, end: file.size - 1 };
  if (range) response.setHeader("Content-Range", `bytes ${start}-${end}/${file.size}`);
  response.writeHead(range ? 206 : 200, { "Content-Length": end - start + 1 });
  if (request.method === "HEAD" || file.size === 0) {
    response.end();
    return;
  }
  // A visitor who leaves in the middle is no error of the server's.
  pipeline(createReadStream(path, { start, end }), response, () => {});
}

/**
 * The file that an address stands for, or null: nothing outside the folders, and nothing hidden.
 * @param {string} pathname
 * @param {Record<string, string>} folders
 */
export function locate(pathname, folders) {
  if (pathname === "/") return INDEX;
  let parts;
  try {
    parts = decodeURIComponent(pathname).split("/").slice(1);
  } catch {
    return null;
  }
  const safe = parts.every(
    (part) => part !== "" && !part.startsWith(".") && !/[\0\\]/.test(part) && !part.includes(sep),
  );
  if (!safe || !Object.hasOwn(folders, parts[0])) return null;
  return join(folders[parts[0]], ...parts.slice(1));
}

/**
 * One range; anything else that the header may say is answered with the whole file, as the standard allows.
 * @param {string | undefined} header
 * @param {number} size
 * @returns {{ start: number, end: number } | "unsatisfiable" | null}
 */
export function parseRange(header, size) {
  const match = /^bytes=(\d*)-(\d*)$/.exec(header ?? "");
  if (!match || (match[1] === "" && match[2] === "")) return null;
  const [first, last] = [match[1], match[2]].map((digits) => (digits === "" ? null : Number(digits)));
  if (first === null) {
    const length = Math.min(last ?? 0, size);
    return length > 0 ? { start: size - length, end: size - 1 } : "unsatisfiable";
  }
  if (last !== null && last < first) return null;
  return first < size ? { start: first, end: Math.min(last ?? Infinity, size - 1) } : "unsatisfiable";
}

/**
 * @param {import("node:http").ServerResponse} response
 * @param {number} status
 * @param {string} message
 */
function refuse(response, status, message) {
  response.writeHead(status, { "Content-Type": "text/plain; charset=utf-8" }).end(`${message}\n`);
}

/** What `npm run serve` and `npm start` end with. @param {string[]} [args] */
export async function serveFromCommandLine(args = process.argv.slice(2)) {
  const { values } = parseArgs({
    args,
    options: { port: { type: "string", default: "8080" }, host: { type: "string", default: "localhost" } },
  });
  const port = Number(values.port);
  if (!Number.isInteger(port) || port < 0 || port > 65535) throw new Failure(`--port ${values.port} is not a port`);
  if (!existsSync(join(FOLDERS.pkg, "hearth.js")))
    throw new Failure("pkg/ is not built yet: run `npm run build` first.");
  const server = await serve({ port, host: values.host });
  const address = server.address();
  const actual = typeof address === "object" && address ? address.port : port;
  console.log(`\nHearth is at http://${values.host}:${actual}  (Ctrl+C ends it)`);
}

if (isMain(import.meta.url)) await main(serveFromCommandLine);
