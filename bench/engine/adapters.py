"""`python -m penstock.bench.engine.adapters [MODEL]`: how fast steps with adapters are, next to the base's alone.

MODEL is a directory; without one it is a random one of SmolLM2-360M's shape. The adapters are random, and add to all
linears of the blocks. Base and adapters take turns step by step, and a ratio is the median of the rounds' ratios, for a
shared machine is now faster, now slower. It also prints how long an adapter takes to load, by itself and beside
steps, and how much longer steps are meanwhile.
"""

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from statistics import median

import click
import torch
from safetensors.torch import save_file

from penstock.bench.engine.own import KV_MEMORY
from penstock.bench.engine.sequences import Sequences, random_prompts
from penstock.bench.load.option_types import Numbers
from penstock.bench.programs.model import existing_model
from penstock.contract.plan import Plan
from penstock.contract.stream_limits import StreamLimits
from penstock.kernels import dispatch
from penstock.shard.communication.distributed import Group
from penstock.shard.config import ShardConfig, physical_cores
from penstock.shard.execution.executor import Executor
from penstock.shard.weights.sites import Adaptable
from penstock.system.heap import freeze_heap

FIRST_ID = 16                            # behind the special tokens


@dataclass(frozen=True)
class Case:
    """Some rows that decode, or one prompt; the rows take turns with the adapters."""

    name: str
    rows: int
    prompt: int
    new: int


def write_adapter(folder: Path, adaptable: Adaptable, rank: int, seed: int) -> Path:
    """Writes a random adapter of all linears but the head in bfloat16, as PEFT does, and returns its folder."""
    folder.mkdir()
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for site in adaptable.sites[:-1]:
        for name, part in site.parts:
            for matrix, shape in (("A", (rank, part.in_features)), ("B", (part.out_features, rank))):
                numbers = torch.randn(shape, generator=generator) / 50
                tensors[f"base_model.model.{name}.lora_{matrix}.weight"] = numbers.bfloat16()
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


class Runs:
    """Runs cases on one executor."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self._seed = 0

    def seconds(self, case: Case, adapters: Sequence[int]) -> tuple[float, float]:
        """Returns the time of a case's decode steps, or of its prompt, if it has no others: by the base, and with
        adapters. Steps of the two take turns."""
        self._seed += 1
        own = [adapters[row % len(adapters)] for row in range(case.rows)]
        prompts, decodes = self.steps(replace(case, rows=2 * case.rows), [*[0] * case.rows, *own])
        times = [self._times(step, case.rows, is_first) for step, is_first in zip(
            prompts, cycle((True, False)), strict=False)] if not decodes else []
        for step in prompts if decodes else ():
            self.executor.execute(step)
        times += [self._times(step, case.rows, is_first) for step, is_first in zip(
            decodes, cycle((True, False)), strict=False)]
        base, adapted = zip(*times, strict=True)
        return sum(base), sum(adapted)

    def steps(self, case: Case, adapters: Sequence[int]) -> tuple[list[Plan], list[Plan]]:
        """Opens the executor for a case, and returns its steps of prompts and of decode rows."""
        bounds = self.executor.memory.bounds
        prompts = random_prompts(case.rows, case.prompt, bounds.vocab_size, FIRST_ID, self._seed)
        num_blocks = case.rows * -(-(case.prompt + case.new) // bounds.block_size)
        sequences = Sequences(prompts, case.new, bounds.block_size, range(num_blocks), adapters=adapters)
        self.executor.open(StreamLimits(case.rows, 1 << 20, sequences.blocks_each, 0))
        tokens = case.prompt if case.new > 1 else case.rows * case.prompt
        return list(sequences.prompt_steps(tokens)), list(sequences.decode_steps())

    def _times(self, step: Plan, rows: int, is_base_first: bool) -> tuple[float, float]:
        """Runs the first rows of a step, which are the base's, and the others apart."""
        parts = replace(step, rows=step.rows[:rows]), replace(step, rows=step.rows[rows:])
        times = [0.0, 0.0]
        for index in (0, 1) if is_base_first else (1, 0):
            begin = time.perf_counter()
            self.executor.execute(parts[index])
            times[index] = time.perf_counter() - begin
        return times[0], times[1]


def compare(runs: Runs, cases: Sequence[Case], adapters: Sequence[int], rounds: int) -> Iterator[str]:
    """Yields a line for each case."""
    found: dict[str, list[tuple[float, float]]] = {case.name: [] for case in cases}
    for _ in range(rounds):
        for case in cases:
            found[case.name].append(runs.seconds(case, adapters))
    for case in cases:
        ratios = [base / adapted for base, adapted in found[case.name]]
        base, adapted = (median(times) for times in zip(*found[case.name], strict=True))
        steps = max(1, case.new - 1)
        yield (f"{case.name}: {1e3 * base / steps:.1f} ms a step by the base, {1e3 * adapted / steps:.1f} with "
               f"adapters: {median(ratios):.3f} of its speed ({min(ratios):.3f} to {max(ratios):.3f})")


def loading(runs: Runs, folder: Path, case: Case) -> Iterator[str]:
    """Yields how long an adapter takes to load, and what steps meanwhile take."""
    store = runs.executor.adapters
    begin = time.perf_counter()
    num_bytes = store.load(1 << 20, folder).result()
    yield f"load of {num_bytes / 1e6:.1f} MB with nothing beside it: {time.perf_counter() - begin:.3f} s"
    prompts, decodes = runs.steps(case, ())
    for step in prompts:
        runs.executor.execute(step)
    alone, beside = [], []
    half, future, begin, took = len(decodes) // 2, None, 0.0, 0.0
    for number, step in enumerate(decodes):
        if number == half:
            begin, future = time.perf_counter(), store.load(1 << 20, folder)
        start = time.perf_counter()
        runs.executor.execute(step)
        end = time.perf_counter()
        if future and not took:
            beside.append(end - start)
            took = end - begin if future.done() else 0.0
        elif not future:
            alone.append(end - start)
    store.unload(1 << 20)
    yield (f"beside steps of {case.rows} rows: {took:.3f} s; a step takes {1e3 * median(alone):.1f} ms by itself (at "
           f"most {1e3 * max(alone):.1f}), {1e3 * median(beside):.1f} beside the load (at most "
           f"{1e3 * max(beside):.1f}, of {len(beside)})")


@click.command(help=__doc__)
@click.argument("model", type=click.Path(exists=True, file_okay=False, path_type=Path), required=False)
@click.option("--threads", default=lambda: len(physical_cores()), show_default="physical cores", type=int)
@click.option("--rounds", type=click.IntRange(1), default=7, show_default=True)
@click.option("--rows", type=Numbers(is_whole=True), default="8,16", show_default=True, help="That decode at once.")
@click.option("--prefill", default=512, show_default=True, help="Tokens of the one long prompt.")
@click.option("--adapters", "count", type=click.IntRange(1), default=8, show_default=True)
@click.option("--rank", type=click.IntRange(1, 256), default=16, show_default=True)
def main(
    model: Path | None, threads: int, rounds: int, rows: list[float], prefill: int, count: int, rank: int,
) -> None:
    dispatch.set_threads(threads)
    executor = Executor(ShardConfig(model=existing_model(model), kv_memory=KV_MEMORY), Group())
    adaptable = executor.model.adaptable
    if adaptable is None:
        raise click.ClickException("the model takes no adapters")
    cases = [Case(f"decode, {int(number)} rows", int(number), 128, 32) for number in rows]
    with tempfile.TemporaryDirectory() as directory:
        folders = [write_adapter(Path(directory) / str(seed), adaptable, rank, seed) for seed in range(count)]
        for number, folder in enumerate(folders, 1):
            executor.adapters.load(number, folder).result()
        freeze_heap()
        runs = Runs(executor)
        print(f"{count} adapters of rank {rank}, {threads} threads, {dispatch.path()}")
        for line in compare(runs, [*cases, Case(f"prefill, {prefill} tokens", 1, prefill, 1)], range(1, count + 1),
                            rounds):
            print(line)
        for line in loading(runs, folders[0], Case("decode", 8, 128, 160)):
            print(line)


if __name__ == "__main__":
    main()
