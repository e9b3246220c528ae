"""How long a shard rests between two steps of a stream: `python -m penstock.bench.gap`.

A real shard is sent decode steps over gRPC, `--depth` of them in flight, encoded before; what a step takes beyond
model and sampler is the gap.
"""

import tempfile
import time
from collections import deque
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import click
import numpy as np

from penstock.bench.model import existing_model
from penstock.bench.own_engine import FIRST_ID, KV_MEMORY, Written, decode_steps, prompt_steps
from penstock.bench.peers import DIRECTORY
from penstock.bench.trial import Trial
from penstock.protos.shard_pb2 import Order, StepResult
from penstock.shard.config import physical_cores
from penstock.shard.models.config import ModelConfig
from tests.shard.processes import ClientStream, clients, encode_plan, running

BLOCK_SIZE = 16


def orders(model: Path, trial: Trial) -> tuple[list[Order], list[Order]]:
    """The prompts' steps, and the decode steps."""
    vocab_size = ModelConfig.from_dir(model).vocab_size
    rng = np.random.default_rng(0)
    sequences = [Written(slot, rng.integers(FIRST_ID, vocab_size, trial.prompt), trial, BLOCK_SIZE)
                 for slot in range(trial.sequences)]
    prompts = list(prompt_steps(sequences))
    steps = [replace(step, step_id=number) for number, step in enumerate([*prompts, *decode_steps(sequences)])]
    encoded = [encode_plan(step) for step in steps]
    return encoded[:len(prompts)], encoded[len(prompts):]


def decode(stream: ClientStream, plans: list[Order], depth: int) -> tuple[list[float], list[StepResult]]:
    """When each result came, and what it said."""
    waiting, times, results = deque(plans), [], []
    stream.write(*(waiting.popleft() for _ in range(depth)))
    for _ in plans:
        results.append(stream.read())
        times.append(time.perf_counter())
        if waiting:
            stream.write(waiting.popleft())
    return times, results


@click.command(help=__doc__)
@click.option("--model", type=DIRECTORY, envvar="MODEL_ID", help="A directory.  [default: a random model of "
              "SmolLM2-360M's shape]")
@click.option("--threads", default=lambda: len(physical_cores()), show_default="physical cores", type=int,
              envvar="THREADS")
@click.option("--sequences", default=32, show_default=True)
@click.option("--prompt", default=128, show_default=True)
@click.option("--new", default=64, show_default=True, type=click.IntRange(min=8))
@click.option("--depth", default=2, show_default=True)
@click.option("--sampled/--greedy", "is_sampled", default=False)
def main(
    model: Path | None, threads: int, sequences: int, prompt: int, new: int, depth: int, is_sampled: bool
) -> None:
    model = existing_model(model)
    prompts, plans = orders(model, Trial("decode", sequences, prompt, new, is_sampled))
    flags = ("--model", str(model), "--kv-memory", str(KV_MEMORY), "--threads", str(threads))
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), *flags) as shards, clients(shards) as [client]:
        stream = client.open()
        stream.write(*prompts)
        for _ in prompts:
            stream.read()
        times, results = decode(stream, plans, depth)
        stream.done_writing()
        with suppress(StopIteration):
            stream.read()
    step = (times[-1] - times[0]) / (len(times) - 1)
    forward, sample = (sum(getattr(result, name) for result in results[1:]) / 1e9 / (len(times) - 1)
                       for name in ("forward_ns", "sample_ns"))
    print(f"{sequences} sequences, depth {depth}, ms per step: {1e3 * step:.3f}, forward {1e3 * forward:.3f}, "
          f"sample {1e3 * sample:.3f}, between {1e3 * (step - forward - sample):.3f}")


if __name__ == "__main__":
    main()
