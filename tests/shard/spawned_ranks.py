"""The ranks of a group as processes that each run a function of a test."""

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import torch

Results = dict[str, Any]


def run_ranks(work: Callable[..., Results], world_size: int, folder: Path) -> list[Results]:
    """What `work(rank, world_size, folder, barrier)` returns in each of `world_size` processes."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(world_size)
    ranks = range(world_size)
    processes = [context.Process(target=_run_rank, args=(work, rank, world_size, folder, barrier)) for rank in ranks]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        process.kill()
    assert [process.exitcode for process in processes] == [0] * world_size
    return [torch.load(folder / f"results-{rank}.pt") for rank in ranks]


def _run_rank(work: Callable[..., Results], rank: int, world_size: int, folder: Path, barrier: Barrier) -> None:
    torch.set_num_threads(1)
    torch.save(work(rank, world_size, folder, barrier), folder / f"results-{rank}.pt")
    os._exit(0)  # as a process that is killed: without goodbye to its group
