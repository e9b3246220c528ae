"""The ranks of a group as processes that each run a function of a test.

To import torch and our own modules is most of what a small rank would do, so they are forked from a process that did it
once. On a machine with a GPU, which no process may have looked at that forks, they import the kernels themselves.
"""

import multiprocessing
import os
import pickle
import sys
from collections.abc import Callable, Mapping
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import torch

Results = dict[str, Any]

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload([*["tests.shard.preloaded"] * (not torch.cuda.is_available()),
                                "torch", "grpc", "pytest", "penstock.shard.config",
                                "penstock.shard.communication.distributed", "tests.shard.step_programs"])


def run_ranks(work: Callable[..., Results], world_size: int, folder: Path) -> list[Results]:
    """What `work(rank, world_size, folder, barrier)` returns in each of `world_size` processes."""
    barrier = CONTEXT.Barrier(world_size)
    variables, pickled = dict(os.environ), pickle.dumps(work)
    processes = [CONTEXT.Process(target=_run_rank, args=(variables, pickled, rank, world_size, folder, barrier))
                 for rank in range(world_size)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)  # on a busy machine; one that hangs is not waited for longer
        process.kill()
    assert [process.exitcode for process in processes] == [0] * world_size
    return [torch.load(folder / f"results-{rank}.pt") for rank in range(world_size)]


def begin_with(variables: Mapping[str, str]) -> None:
    """Gives a process that was forked the variables of the test, and the kernels that they ask for."""
    os.environ.clear()
    os.environ.update(variables)
    torch.set_num_threads(1)
    if (preloaded := sys.modules.get("tests.shard.preloaded")) is not None:
        preloaded.bind_as_wished()


def _run_rank(
    variables: Mapping[str, str], pickled: bytes, rank: int, world_size: int, folder: Path, barrier: Barrier
) -> None:
    begin_with(variables)
    work = pickle.loads(pickled)
    torch.save(work(rank, world_size, folder, barrier), folder / f"results-{rank}.pt")
    os._exit(0)  # as a process that is killed: without goodbye to its group
