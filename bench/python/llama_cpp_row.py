"""llama.cpp on the CPU, natively: reads a job (model, threads, prompts, newTokens) from standard input, prints the timings, both as JSON."""

import json
import resource
import sys
import time

from llama_cpp import Llama


def milliseconds(since):
    return 1000 * (time.perf_counter() - since)


def generate(llama, ids, new_tokens):
    """Takes the likeliest token each time, the end of the text included. Gives the tokens, and when each came after the start."""
    llama.reset()
    start = time.perf_counter()
    tokens, ticks = [], []
    while len(tokens) < new_tokens:
        llama.eval(tokens[-1:] or ids)
        tokens.append(llama.sample(temp=0.0))
        ticks.append(milliseconds(start))
    return tokens, ticks


def main():
    job = json.load(sys.stdin)
    start = time.perf_counter()
    # A batch holds the longest prompt.
    llama = Llama(
        job["model"],
        n_ctx=1024,
        n_batch=1024,
        n_threads=job["threads"],
        n_threads_batch=job["threads"],
        n_gpu_layers=0,
        verbose=False,
    )
    load_ms = milliseconds(start)
    start = time.perf_counter()
    generate(llama, job["prompts"][0]["ids"][:4], 2)
    warm_up_ms = milliseconds(start)

    runs = {}
    for prompt in job["prompts"]:
        tokens, ticks = generate(llama, prompt["ids"], job["newTokens"])
        runs[prompt["name"]] = {
            "promptTokens": prompt["tokens"],
            "newTokens": len(tokens),
            "firstTokenMs": ticks[0],
            "prefillTokensPerSecond": 1000 * prompt["tokens"] / ticks[0],
            "decodeTokensPerSecond": 1000 * (len(tokens) - 1) / (ticks[-1] - ticks[0]),
            "text": llama.detokenize(tokens).decode(errors="replace"),
        }
    # Kilobytes on Linux, bytes on a Mac.
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    print(json.dumps({"loadMs": load_ms, "warmUpMs": warm_up_ms, "runs": runs, "peakBytes": peak}))


if __name__ == "__main__":
    main()
