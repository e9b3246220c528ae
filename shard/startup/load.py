"""Makes an executor that is ready to run steps: its model read, and on a GPU its KV memory fitted, its kernels compiled
and its steps captured."""

import logging

import torch

from penstock.shard.communication.distributed import Group
from penstock.shard.config import ShardConfig
from penstock.shard.devices import gpu
from penstock.shard.execution.captures import capture
from penstock.shard.execution.executor import Executor
from penstock.shard.execution.gpu_memory import out_of_memory
from penstock.shard.models.unfollowed import absent_sizes, unfollowed
from penstock.shard.progress import LoadProgress
from penstock.shard.startup import refusals
from penstock.shard.startup.trial import check_memory, fit_kv_memory
from penstock.shard.startup.warmup import warm_up

log = logging.getLogger(__name__)


def load(config: ShardConfig, group: Group, progress: LoadProgress | None = None) -> Executor:
    """Load the model and make the executor ready; all ranks of the group call it together.

    Raises the errors of reading a checkpoint, and KvMemoryError."""
    progress = progress or LoadProgress()
    refusals.check(config)
    if config.rank == 0:
        _warn(absent_sizes(config.model))
    try:
        with progress.reading():
            executor = Executor(config, group, progress.read, progress.tell)
        if gpu.is_used():
            largest_step = fit_kv_memory(executor, config)
            warm_up(executor, group, config, progress)
            capture(executor, progress)
            check_memory(executor, config, largest_step)
        elif config.rank == 0:
            _say_what_has_no_effect(config)
        if config.rank == 0:
            _warn(unfollowed(config.model, executor.model.facts.vocab_size))
    except torch.OutOfMemoryError as error:
        raise out_of_memory(config, error) from error
    return executor


def _warn(sentences: list[str]) -> None:
    for sentence in sentences:
        log.warning("%s", sentence)


def _say_what_has_no_effect(config: ShardConfig) -> None:
    """Names the settings of GPUs, which users of both kinds of machine have in the same file, on a processor."""
    if any(config.cuda_graphs or ()):
        log.info("--cuda-graphs: nothing is captured, for the shard computes on the processor")
    if config.cuda_memory_fraction != 1:
        log.warning("--cuda-memory-fraction %g has no effect: the shard computes on the processor; --kv-memory says "
                    "how much memory keys and values get", config.cuda_memory_fraction)
