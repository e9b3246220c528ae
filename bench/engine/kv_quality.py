"""`python -m penstock.bench.engine.kv_quality`: what KV caches of 8 bits cost the demo model in quality.

The text is what deploy/demo_model/train.py held out: two in a hundred of the source files and of the docstrings of the
standard library of the Python that runs this. It is unknown to the model where that Python is the one of training.json;
where it is another, a line says so. Windows of 512 tokens, spread evenly over sources and docstrings, are scored as
prompts, each from an empty cache. Losses are means of -log p in nats, perplexity is exp of that of all; "equal" is the
share of positions at which the likeliest token is that of the same kernels with a cache of the model's own dtype.
"""

import importlib.util
import itertools
import json
import math
import os
import random
import subprocess
import sys
from types import ModuleType
from typing import Literal

import click
import numpy as np
import torch

from penstock.bench.programs.root import DEMO_MODEL, ROOT

BLOCK_SIZE = 16
WINDOW, TOGETHER = 512, 4                # scored tokens of a window; windows in a step
CACHES = {"cpu": ["int8"], "reference": ["int8", "fp8_e4m3fn", "fp8_e5m2"], "gpu": ["int8", "fp8_e4m3fn", "fp8_e5m2"]}

KvCacheDtype = Literal["fp8_e4m3fn", "fp8_e5m2", "int8"] | None


def training() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train", DEMO_MODEL.with_name("train.py"))
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def held_out_windows(count: int) -> tuple[list[list[list[int]]], int]:
    """Returns `count` windows of WINDOW + 1 ids of sources, as many of docstrings, and how many ids there are."""
    train = training()
    tokenizer = train.PreTrainedTokenizerFast.from_pretrained(DEMO_MODEL)
    rng = random.Random(json.loads((DEMO_MODEL / "training.json").read_text())["seed"])
    _, sources = train.split(train.source_texts(), rng)
    _, groups = train.split(train.chat_texts(rng), rng)
    parts, total = [], 0
    for texts in (sources, [turn for group in groups for turn in group]):
        ids = [id for text in texts for id in (*tokenizer(text, add_special_tokens=False)["input_ids"],
                                               tokenizer.bos_token_id)]
        whole = [ids[at : at + WINDOW + 1] for at in range(0, len(ids) - WINDOW, WINDOW + 1)]
        picked = np.linspace(0, len(whole) - 1, min(count, len(whole))).astype(int)
        parts.append([whole[index] for index in picked])
        total += len(ids)
    return parts, total


def prompt_logprobs(windows: list[list[int]], kv_cache_dtype: KvCacheDtype) -> dict[str, list[float]]:
    """Returns the logprob of each token behind a window's first, the likeliest one there, the bytes of a token's KV."""
    from penstock.contract.initial_state import InitialState
    from penstock.contract.output import Output
    from penstock.contract.plan import Plan
    from penstock.contract.row import Row
    from penstock.contract.sampling import Sampling
    from penstock.contract.stream_limits import StreamLimits
    from penstock.shard.communication.distributed import Group
    from penstock.shard.config import ShardConfig
    from penstock.shard.execution.executor import Executor

    blocks = WINDOW // BLOCK_SIZE
    executor = Executor(ShardConfig(
        DEMO_MODEL, kv_cache_dtype=kv_cache_dtype, kv_memory=256 << 20, block_size=BLOCK_SIZE), Group())
    executor.open(StreamLimits(TOGETHER, TOGETHER * WINDOW, blocks, 1))
    logprobs: list[float] = []
    likeliest: list[float] = []
    for step, begin in enumerate(range(0, len(windows), TOGETHER)):
        rows = tuple(
            Row(slot, 0, from_last_sample=False, token_ids=tuple(window[:-1]),
                new_blocks=tuple(range(slot * blocks, (slot + 1) * blocks)), output=Output.NONE,
                initial_state=InitialState(Sampling(top_n=1), WINDOW),
                prompt_logprob_ids=tuple(window[1:]))
            for slot, window in enumerate(windows[begin : begin + TOGETHER]))
        for row in executor.execute(Plan(step, rows, tuple(range(TOGETHER)) if step else ())).rows:
            logprobs += row.prompt_logprobs
            likeliest += [top[0][0] for top in row.prompt_top_logprobs]
    size = sum(cache.data.shape[1] for cache in executor.memory.caches) / BLOCK_SIZE
    return {"logprobs": logprobs, "likeliest": likeliest, "bytes": [size]}


def measure(kernels: str, parts: list[list[list[int]]]) -> None:
    """Prints the rows of one kernel set, which a process of its own uses."""
    script = ("import json, sys; from penstock.bench.engine.kv_quality import prompt_logprobs; "
              "windows, names = json.load(sys.stdin); "
              "print(json.dumps([prompt_logprobs(windows, name) for name in names]))")
    names = [None, *CACHES[kernels]]
    child = subprocess.run([sys.executable, "-c", script], text=True, check=True, stdout=subprocess.PIPE, cwd=ROOT,
                           input=json.dumps([[*itertools.chain(*parts)], names]),
                           env={**os.environ, "KERNELS": kernels})
    own, *_ = results = json.loads(child.stdout.splitlines()[-1])
    for name, result in zip(names, results, strict=True):
        loss = -float(np.mean(result["logprobs"]))
        losses = [-float(np.mean(some)) for some in np.split(result["logprobs"], [len(parts[0]) * WINDOW])]
        more = np.subtract(own["logprobs"], result["logprobs"])
        equal = float(np.mean(np.equal(result["likeliest"], own["likeliest"])))
        print(f"| {kernels} | {name or 'bfloat16'} | {result['bytes'][0]:.0f} | {losses[0]:.4f} | {losses[1]:.4f} | "
              f"{math.exp(loss):.3f} | {more.mean():+.5f} ± {more.std() / math.sqrt(len(more)):.5f} | {equal:.2%} |",
              flush=True)


@click.command(help=__doc__.split("\n")[0])
@click.option("--windows", default=24, show_default=True, help=f"of {WINDOW} tokens, of sources and of docstrings")
@click.option("--kernels", multiple=True, type=click.Choice(list(CACHES)), help="kernel sets; default: all there are")
def main(windows: int, kernels: tuple[str, ...]) -> None:
    parts, total = held_out_windows(windows)
    count = sum(len(part) for part in parts)
    trained = json.loads((DEMO_MODEL / "training.json").read_text())
    own = sys.version.split()[0]
    print(f"{count} windows of {WINDOW} tokens, {count * WINDOW} scored of {total} held out; Python {own}"
          + ("" if own == trained["python"] else f", but the model was trained on {trained['python']}'s library: "
             "some of this text may have been in the training"))
    print(f"losses on all that was held out, by training.json: {trained['held_out_loss']}\n")
    print("| kernels | KV cache | bytes a token | loss, sources | docstrings | perplexity | more loss | equal |")
    print("|---|---|---|---|---|---|---|---|")
    for name in kernels or [name for name in CACHES if name != "gpu" or torch.cuda.is_available()]:
        measure(name, parts)


if __name__ == "__main__":
    main()
