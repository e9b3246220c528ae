"""How long a shard rests between two steps of a stream: `python -m penstock.bench.server.gap`.

A real shard is sent decode steps over gRPC by the router's client, `--depth` of them in flight, encoded before; what a
step takes beyond model and sampler is the gap.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import click

from penstock.bench.engine.own import KV_MEMORY, budget, trial_sequences
from penstock.bench.programs.children import Child, exit_on_sigterm
from penstock.bench.programs.model import existing_model
from penstock.bench.programs.peers import DIRECTORY
from penstock.bench.programs.root import ROOT
from penstock.bench.programs.trial import Trial
from penstock.contract.step_result import StepResult
from penstock.contract.stream_limits import StreamLimits
from penstock.contract.wire import encode_plan
from penstock.router.fleet.client import ShardClient
from penstock.shard.config import physical_cores


async def run_trial(target: str, trial: Trial, depth: int) -> tuple[list[float], list[StepResult]]:
    """Returns when the result of each decode step came, and what it said."""
    client = ShardClient(target)
    try:
        facts = (await client.describe()).facts
        sequences = trial_sequences(trial, facts.vocab_size, facts.block_size)
        await client.open(StreamLimits(trial.sequences, 1 << 20, sequences.blocks_each, epoch=1))
        prompts = [encode_plan(step).SerializeToString() for step in sequences.prompt_steps(budget(trial))]
        decodes = [encode_plan(step).SerializeToString() for step in sequences.decode_steps(len(prompts))]
        await exchange(client, prompts, depth)
        return await exchange(client, decodes, depth)
    finally:
        await client.close()


async def exchange(client: ShardClient, orders: Sequence[bytes], depth: int) -> tuple[list[float], list[StepResult]]:
    """Sends all orders, `depth` of them ahead of the results."""
    waiting, times, results = deque(orders), [], []
    for _ in range(min(depth, len(orders))):
        await client.write(waiting.popleft())
    for _ in orders:
        results.append(await client.read())
        times.append(time.perf_counter())
        if waiting:
            await client.write(waiting.popleft())
    return times, results


def shard(folder: Path, model: Path, num_threads: int) -> tuple[str, Child]:
    """Starts a shard; returns its gRPC address too, once it listens. Raises ClickException if it ends before."""
    target = f"unix:{folder / 'shard.sock'}"
    config = {"listen": target, "model": str(model), "kv_memory": KV_MEMORY, "threads": num_threads}
    command = [sys.executable, "-m", "penstock.shard", "--config", json.dumps(config)]
    child = Child("shard", command, folder, {"PYTHONPATH": str(ROOT)})
    while not (folder / "shard.sock").exists():
        if child.process.poll() is not None:
            raise child.failure(f"ended with {child.process.returncode}")
        time.sleep(0.05)
    return target, child


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
    exit_on_sigterm()
    trial = Trial("decode", sequences, prompt, new, is_sampled)
    with tempfile.TemporaryDirectory() as folder:
        target, child = shard(Path(folder), existing_model(model), threads)
        with child:
            times, results = asyncio.run(run_trial(target, trial, depth))
    count = len(times) - 1
    step = (times[-1] - times[0]) / count
    forward = sum(result.forward_time for result in results[1:]) / count
    sample = sum(result.sample_time for result in results[1:]) / count
    print(f"{sequences} sequences, depth {depth}, ms per step: {1e3 * step:.3f}, forward {1e3 * forward:.3f}, "
          f"sample {1e3 * sample:.3f}, between {1e3 * (step - forward - sample):.3f}")


if __name__ == "__main__":
    main()
