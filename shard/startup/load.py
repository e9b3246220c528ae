"""Makes an executor that is ready to run steps: its model read, and on a GPU its KV memory fitted, its kernels compiled
and its decode steps captured."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from tqdm import tqdm

from penstock.shard.communication.distributed import Group
from penstock.shard.config import ShardConfig
from penstock.shard.devices import gpu
from penstock.shard.execution.executor import Executor
from penstock.shard.execution.gpu_memory import out_of_memory
from penstock.shard.execution.graphs import DecodeGraphs
from penstock.shard.startup.trial import fit_kv_memory
from penstock.shard.startup.warmup import warm_up
from penstock.shard.weights.rank_weights import Progress

log = logging.getLogger(__name__)


def load(config: ShardConfig, group: Group, has_bar: bool = False) -> Executor:
    """Load the model and make the executor ready; all ranks of the group call it together.

    Raises what reading a checkpoint raises, and KvMemoryError.
    """
    try:
        with _progress_bar(has_bar) as progress:
            executor = Executor(config, group, progress)
        if gpu.is_used():
            fit_kv_memory(executor, config)
            warm_up(executor, group, config, has_bar)
            executor.graphs = DecodeGraphs(executor.decoder, executor.caches, executor.bounds, config.graph_sizes)
            executor.graphs.capture(has_bar)
        elif any(config.cuda_graphs or ()):
            log.info("--cuda-graphs: nothing is captured, for the shard computes on the processor")
    except torch.OutOfMemoryError as error:
        raise out_of_memory(config, error) from error
    return executor


@contextmanager
def _progress_bar(is_shown: bool) -> Iterator[Progress | None]:
    if not is_shown:
        yield None
        return
    with tqdm(desc="Loading weights", unit="tensor", file=sys.stderr) as bar:
        def show(name: str, num_read: int, num_tensors: int) -> None:
            bar.total = num_tensors
            bar.update(num_read - bar.n)
        yield show
