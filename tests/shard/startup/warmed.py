"""The kernels of a warm-up and those of the steps that may follow, as JSON.

`python -m tests.shard.startup.warmed MODEL`

It runs in a process without TRITON_INTERPRET (tests/kernels/specialised.py).
"""

import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from pathlib import Path
from unittest import mock

import numpy as np
import torch

from penstock.contract.sampling import Sampling
from penstock.kernels.linear import fixed_order
from penstock.shard.communication.distributed import Group
from penstock.shard.devices.device import Device
from penstock.shard.execution.captures import capture
from penstock.shard.execution.executor import Executor
from penstock.shard.startup.trial import ALL_SAMPLERS
from penstock.shard.startup.warmup import sizes, warm_up
from tests.kernels.specialised import Specialised, specialised_for
from tests.shard.ranks import make_config
from tests.shard.step_programs import Program, Request, alone, batched

MAX_ROWS, CHUNKS = 40, (1, 2, 3, 5, 15, 16, 17, 31, 48, 64, 100)
MATMULS = [
    (4096, 6144, 1, torch.bfloat16), (4096, 4096, 8, torch.bfloat16), (4096, 28672, 1, torch.bfloat16),
    (14336, 4096, 8, torch.bfloat16), (7168, 4096, 4, torch.float32), (4096, 128256, 1, torch.float32)]
"""Inputs, outputs, segments, and what comes out: of one rank, and of one of two."""
SAMPLINGS = [
    Sampling(), ALL_SAMPLERS, Sampling(top_n=1), Sampling(do_sample=True, seed=3, top_n=20),
    Sampling(raw_logprobs=True, top_n=3), Sampling(raw_logprobs=True, top_n=32), Sampling(watermark=True),
    Sampling(bias_ids=(7, 9, 11), bias_values=(1.0, 1.0, 1.0), presence_penalty=0.5),
    Sampling(banned_ids=(2,), min_tokens=4, top_n=9), Sampling(of_logprobs=True, repetition_penalty=1.3, top_n=20)]


def workload(seed: int = 0) -> list[Program]:
    """Requests of all kinds: one after the other, a few together, and as many as may be."""
    rng = np.random.default_rng(seed)
    requests = [
        Request(rng.integers(3, 160, int(rng.choice([1, 2, 16, 17, 33, 70, 130]))).tolist(), int(rng.integers(1, 40)),
                SAMPLINGS[index % len(SAMPLINGS)], mask_seed=index if index % 4 == 1 else None,
                wants_prompt_logprobs=index % 5 == 2)
        for index in range(60)]
    return [alone(requests[:20]), alone(requests[20:30], chunk=7), batched(requests[:7], seed, chunks=CHUNKS),
            batched(requests, seed, num_blocks=1000, chunks=CHUNKS, max_running=MAX_ROWS)]


def run(executor: Executor, program: Program) -> None:
    executor.open(program.limits)
    for index, step in enumerate(program.steps):
        masks = program.masks(index, executor.memory.bounds.vocab_size)
        executor.execute(step, lambda masks=masks: masks)  # type: ignore[misc]
    executor.close()


def late_matmuls() -> list[tuple[str, str, str]]:
    """Of the fixed order, for Llama 8B's shapes and any number of tokens, those that the warm-up's numbers lack."""
    with specialised_for(90, is_deterministic=True) as kernels:
        _multiply(sizes(4096))
        warmed = set(kernels)
        assert any(kernel.name.endswith("_add_parts") for kernel in warmed)
        _multiply([*range(1, 200), *range(200, 5000, 97)])
    return describe(kernels - warmed)


def _multiply(numbers: Iterable[int]) -> None:
    for number, (inputs, outputs, segments, dtype) in product(numbers, MATMULS):
        x, weight = (torch.empty(size, inputs, dtype=torch.bfloat16) for size in (number, outputs))
        fixed_order.matmul(x, weight, segments, None, dtype)


def describe(kernels: set[Specialised]) -> list[tuple[str, str, str]]:
    return sorted((kernel.name, kernel.constants, kernel.key) for kernel in kernels)


def main(model: str) -> None:
    torch.set_num_threads(1)
    config = replace(make_config(Path(model)), max_step_tokens=100 * MAX_ROWS, max_step_rows=MAX_ROWS)
    report: dict[str, object] = {}
    for is_deterministic in (False, True):
        with (specialised_for(90, is_deterministic) as kernels, mock.patch.object(torch, "empty", torch.zeros),
              mock.patch.object(torch, "empty_like", torch.zeros_like)):  # the tokens are to be in the vocabulary
            executor = Executor(config, Group())
            executor._device = Device(torch.device("cpu"), packs=True)  # where the arrays lie as they do on a GPU
            warm_up(executor, Group(), config)
            assert executor._slots is None
            warmed = set(kernels)
            capture(executor)
            for program in workload():
                run(executor, program)
        report["deterministic" if is_deterministic else "fast"] = {
            "kernels": sorted((kernel.name, kernel.constants) for kernel in kernels),
            "late": describe(kernels - warmed)}
    print(json.dumps(report | {"late_matmuls": late_matmuls()}))


if __name__ == "__main__":
    main(sys.argv[1])
