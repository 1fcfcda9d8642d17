/**
 * Counts what is asked of WebGPU. This is not imported but injected, as a script, into the page or the worker to be
 * watched, before anything of its own runs; it then wraps the API's prototypes and keeps its figures in
 * `webgpuCounter`. `counting.mjs` injects it and reads them.
 *
 * Commands count when they are recorded. A mark is a copy of the figures at one moment: whoever generates text makes
 * one for each token, so that the differences between marks are what the tokens took. Hearth's worker needs no change
 * for that: its `postMessage` is wrapped as well, and a piece of an answer makes a mark.
 */

/**
 * @typedef {object} Counters
 * @property {number} submits
 * @property {number} dispatches
 * @property {number} copies From buffer to buffer.
 * @property {number} writes Calls of `writeBuffer`.
 * @property {number} writtenBytes What these calls passed.
 * @property {number} readBytes What was copied into buffers that can be mapped for reading.
 * @property {number} mappedBytes What was mapped for reading, which may be more than is wanted of it.
 * @property {number} shaderModules
 * @property {number} pipelines
 * @property {number} buffers How many there are now.
 * @property {number} bufferBytes What they take on the device.
 * @property {number} peakBufferBytes The most that they took.
 */

/** @typedef {{ tokens: number, at: number, counters: Counters }} Mark `at` is in milliseconds. */

{
  /** @type {Counters} */
  const counters = {
    submits: 0,
    dispatches: 0,
    copies: 0,
    writes: 0,
    writtenBytes: 0,
    readBytes: 0,
    mappedBytes: 0,
    shaderModules: 0,
    pipelines: 0,
    buffers: 0,
    bufferBytes: 0,
    peakBufferBytes: 0,
  };
  /** @type {Mark[]} */
  const marks = [];
  /** @param {number} tokens How many have been generated so far. */
  const mark = (tokens) => marks.push({ tokens, at: performance.now(), counters: { ...counters } });
  Object.assign(globalThis, { webgpuCounter: { counters, marks, mark } });

  /** @typedef {{ bytes: number, alive: boolean }} Allocation */
  /** @type {WeakMap<GPUBuffer, Allocation>} */
  const allocations = new WeakMap();
  /** @param {Allocation | undefined} allocation */
  const free = (allocation) => {
    if (!allocation?.alive) return;
    allocation.alive = false;
    counters.buffers -= 1;
    counters.bufferBytes -= allocation.bytes;
  };
  /** A buffer that nobody destroyed goes when it is collected. */
  const collected = new FinalizationRegistry(free);

  /**
   * Calls `see` after every call of a method, with the object, the arguments and the result.
   * @param {any} prototype
   * @param {string} name
   * @param {(self: any, args: any[], result: any) => void} see
   */
  const observe = (prototype, name, see) => {
    const original = prototype[name];
    prototype[name] = function (/** @type {any[]} */ ...args) {
      const result = original.apply(this, args);
      see(this, args, result);
      return result;
    };
  };
  /** What the standard says `GPUBufferUsage.MAP_READ` and `GPUMapMode.READ` are. */
  const MAP_READ = 1;

  if ("GPUDevice" in globalThis) {
    observe(GPUQueue.prototype, "submit", () => (counters.submits += 1));
    observe(GPUQueue.prototype, "writeBuffer", (_, [, , data, offset = 0, size]) => {
      const unit = data.BYTES_PER_ELEMENT ?? 1;
      counters.writes += 1;
      counters.writtenBytes += size === undefined ? data.byteLength - offset * unit : size * unit;
    });
    for (const name of ["dispatchWorkgroups", "dispatchWorkgroupsIndirect"]) {
      observe(GPUComputePassEncoder.prototype, name, () => (counters.dispatches += 1));
    }
    observe(GPUCommandEncoder.prototype, "copyBufferToBuffer", (_, args) => {
      // There is a short form without the offsets.
      const isShort = args[1] instanceof GPUBuffer;
      const [source, sourceOffset, target, targetOffset, size] = isShort ? [args[0], 0, args[1], 0, args[2]] : args;
      counters.copies += 1;
      if (target.usage & MAP_READ) {
        counters.readBytes += size ?? Math.min(source.size - sourceOffset, target.size - targetOffset);
      }
    });
    observe(GPUBuffer.prototype, "mapAsync", (buffer, [mode, offset = 0, size]) => {
      if (mode & MAP_READ) counters.mappedBytes += size ?? buffer.size - offset;
    });
    observe(GPUBuffer.prototype, "destroy", (buffer) => free(allocations.get(buffer)));
    observe(GPUDevice.prototype, "createBuffer", (_, [{ size: bytes }], buffer) => {
      const allocation = { bytes, alive: true };
      allocations.set(buffer, allocation);
      collected.register(buffer, allocation);
      counters.buffers += 1;
      counters.bufferBytes += bytes;
      counters.peakBufferBytes = Math.max(counters.peakBufferBytes, counters.bufferBytes);
    });
    observe(GPUDevice.prototype, "createShaderModule", () => (counters.shaderModules += 1));
    for (const name of ["createComputePipeline", "createComputePipelineAsync"]) {
      observe(GPUDevice.prototype, name, () => (counters.pipelines += 1));
    }
  }

  if ("DedicatedWorkerGlobalScope" in globalThis) {
    const post = globalThis.postMessage;
    globalThis.postMessage = (/** @type {any} */ message, /** @type {any[]} */ ...rest) => {
      if (message?.type === "event" && "tokens" in message.event) mark(message.event.tokens);
      return /** @type {any} */ (post).call(globalThis, message, ...rest);
    };
  }
}
