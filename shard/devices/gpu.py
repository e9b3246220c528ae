"""Chooses this shard's GPU, and measures how much of its memory is used."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from penstock.kernels import dispatch
from penstock.shard.config import ShardConfig


@dataclass(frozen=True, slots=True)
class Usage:
    """Tells how much of a GPU's memory is used, in bytes, after some work was done."""

    total: int
    foreign: int                         # of others, and of this process beside its tensors
    base: int                            # of this process's tensors, before the work
    peak: int                            # the same, at most while it was done

    @property
    def work(self) -> int:
        """Returns the bytes that the work takes."""
        return self.peak - self.base


def is_used() -> bool:
    """Returns whether this process computes on a GPU; it does not if the GPU's kernels are interpreted."""
    return dispatch.device().type == "cuda"


def choose(config: ShardConfig) -> None:
    """Use the GPU of this rank, on the calling thread, which every thread is to do for itself. On a processor there is
    nothing to choose. Raises ValueError for settings that cannot be met."""
    if not is_used():
        return
    check_stages(config.pipeline_parallel_size)
    num_gpus = torch.cuda.device_count()
    if not config.rendezvous.startswith("tcp://"):  # other ranks may be on other machines
        check_number(config.num_local, num_gpus)
    torch.cuda.set_device(config.local_rank % num_gpus)
    torch.cuda.set_per_process_memory_fraction(config.cuda_memory_fraction)


def check_number(world_size: int, num_gpus: int) -> None:
    """Raises ValueError if there are fewer GPUs than shards."""
    if num_gpus < world_size:
        raise ValueError(f"--num-shard {world_size}: each shard computes on a GPU of its own, and torch finds "
                         f"{num_gpus}; use --num-shard {num_gpus}, or --device cpu")


def check_stages(number: int) -> None:
    """Raises ValueError for more than one stage."""
    if number > 1:
        raise ValueError(f"--pipeline-parallel-size {number}: stages hand on what is in a processor's memory, not in a "
                         "GPU's; leave it out, or use --device cpu")


def free_memory() -> int:
    """Returns how many bytes of the GPU's memory nobody uses."""
    free, _ = torch.cuda.mem_get_info()
    return int(free)


def obtainable_memory(fraction: float) -> int:
    """Returns how many bytes this process can still get, if it may use this fraction of the GPU's memory: memory that
    nobody uses, and memory that its allocator has free. Free memory of captured graphs stays theirs."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return max(0, min(int(free), int(total * fraction) - torch.cuda.memory_reserved()))


def measure(work: Callable[[], object]) -> Usage:
    """Do the work, all of it, and see what memory it takes. Others' use is what it is afterwards."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    base = torch.cuda.memory_allocated()
    work()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return Usage(total, total - free - torch.cuda.memory_reserved(), base, peak)
