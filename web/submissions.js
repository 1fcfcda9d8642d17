/**
 * Fewer, larger submissions. The engine submits a token's forward pass, the choice of the next token and the copy of its id
 * one after the other, because each might be the last; to the browser each submission is a message to another process.
 * Here they are put off until something asks for their effect, and then go out as one.
 */

/** @type {WeakMap<GPUQueue, GPUCommandBuffer[]>} */
const waiting = new WeakMap();
/** @type {Set<GPUQueue>} */
const queues = new Set();
let installed = false;

/** From now on, submissions of this thread wait for each other. A second call does nothing. */
export function batchSubmissions() {
  if (installed || typeof GPUQueue === "undefined") return;
  installed = true;
  const submit = GPUQueue.prototype.submit;

  const flush = () => {
    for (const queue of queues) {
      const buffers = waiting.get(queue) ?? [];
      waiting.delete(queue);
      submit.call(queue, buffers);
    }
    queues.clear();
  };

  GPUQueue.prototype.submit = function (buffers) {
    const before = waiting.get(this) ?? [];
    waiting.set(this, [...before, ...buffers]);
    // Nothing may wait for ever: at the latest the next turn of the event loop sends what is left.
    if (queues.size === 0) setTimeout(flush);
    queues.add(this);
    return undefined;
  };

  // What looks at the effect of a submission, or must come after it, sends it first.
  flushBefore(GPUQueue.prototype, ["writeBuffer", "writeTexture", "onSubmittedWorkDone"], flush);
  flushBefore(GPUBuffer.prototype, ["mapAsync", "destroy"], flush);
  flushBefore(GPUDevice.prototype, ["destroy", "pushErrorScope", "popErrorScope"], flush);
}

/**
 * @param {any} prototype
 * @param {string[]} methods
 * @param {() => void} flush
 */
function flushBefore(prototype, methods, flush) {
  for (const name of methods) {
    const method = prototype[name];
    prototype[name] = function (/** @type {any[]} */ ...args) {
      flush();
      return method.apply(this, args);
    };
  }
}
