"""The ranks of a group as processes that each run a function of a test.

To import torch is most of what a small rank would do, so they are forked from a process that did it once. They import
the kernels themselves, which bind by the variables that hold when a rank is started.
"""

import multiprocessing
import os
import pickle
from collections.abc import Callable, Mapping
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import torch

Results = dict[str, Any]

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch"])


def run_ranks(work: Callable[..., Results], world_size: int, folder: Path) -> list[Results]:
    """What `work(rank, world_size, folder, barrier)` returns in each of `world_size` processes."""
    barrier = _CONTEXT.Barrier(world_size)
    variables, pickled = dict(os.environ), pickle.dumps(work)
    processes = [_CONTEXT.Process(target=_run_rank, args=(variables, pickled, rank, world_size, folder, barrier))
                 for rank in range(world_size)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        process.kill()
    assert [process.exitcode for process in processes] == [0] * world_size
    return [torch.load(folder / f"results-{rank}.pt") for rank in range(world_size)]


def _run_rank(
    variables: Mapping[str, str], pickled: bytes, rank: int, world_size: int, folder: Path, barrier: Barrier
) -> None:
    os.environ.clear()
    os.environ.update(variables)
    torch.set_num_threads(1)
    work = pickle.loads(pickled)
    torch.save(work(rank, world_size, folder, barrier), folder / f"results-{rank}.pt")
    os._exit(0)  # as a process that is killed: without goodbye to its group
