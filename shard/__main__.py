"""`python -m shard`: load a model, measure, then listen for a router."""

import asyncio
import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch
from tqdm import tqdm

from kernels import dispatch
from shard import distributed, log, process
from shard.agreement import Agreement
from shard.config import ShardConfig
from shard.executor import Executor
from shard.kv_cache import KvMemoryError
from shard.measure import measure_step_tokens
from shard.server import serve
from shard.weights import Progress
from shard.worker import Worker

GROUP_TIMEOUT = 24 * 3600.0
"""Seconds that a rank waits for another. Long, for it may wait for a router; a rank that dies is noticed at once, and
one that hangs is the launcher's to find."""

logger = logging.getLogger("shard")


@click.command()
@click.option("--model", type=click.Path(path_type=Path), required=True, metavar="DIR",
              help="Directory of the checkpoint: config.json and safetensors files.")
@click.option("--model-id", metavar="NAME", help="What the model is called.  [default: DIR]")
@click.option("--rank", type=click.IntRange(0), default=0, show_default=True, help="This shard's place in its group.")
@click.option("--world-size", type=click.IntRange(1), default=1, show_default=True, help="Shards in the group.")
@click.option("--listen", required=True, metavar="ADDRESS",
              help="Where the router finds this shard: unix:/path or host:port.")
@click.option("--rendezvous", default="", metavar="URL",
              help="Where the group meets: file:///path of a file that does not exist yet, or tcp://host:port, where "
                   "rank 0 will listen. Not needed for a group of one.")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16", "float16"]),
              help="Of the weights and the KV memory.  [default: the checkpoint's]")
@click.option("--kv-memory", type=click.IntRange(1), metavar="BYTES",
              help="Of this shard.  [default: its part of a quarter of the free memory]")
@click.option("--block-size", type=click.IntRange(1), default=16, show_default=True, help="Tokens in a KV block.")
@click.option("--threads", type=click.IntRange(1), help="[default: this shard's part of the physical cores]")
@click.option("--parent-pid", type=int, metavar="PID", help="End when PID is no longer this process's parent.")
@click.option("--json-output", is_flag=True, help="Log one JSON object a line, and show no progress bar.")
def main(parent_pid: int | None, json_output: bool, **settings: Any) -> None:
    """Serve one shard of a model to a router over gRPC.

    The address appears once the model can answer. SIGTERM lets the running step end and exits with 0.
    """
    config = ShardConfig(**settings)
    # Until something is served there is nothing to end in order, and Python would not notice in the middle of a wait.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if parent_pid is not None:
        process.end_with_parent(parent_pid)
    log.start(json_output, config.rank)
    torch.set_num_threads(config.num_threads)
    try:
        _run(config, has_bar=config.rank == 0 and not json_output)
    except (ValueError, OSError, KvMemoryError) as error:
        print(f"shard {config.rank}: {error}", file=sys.stderr)
        process.leave(1, config.socket_path)
    process.leave(0, config.socket_path)


def _run(config: ShardConfig, has_bar: bool) -> None:
    config.check()
    group = distributed.connect(config.rendezvous, config.rank, config.world_size, GROUP_TIMEOUT)
    with _progress_bar(has_bar) as progress:
        executor = Executor(config, group, progress)
    facts = executor.facts(measure_step_tokens(executor, group))
    logger.info("kernels %s, dtype %s, %d blocks of %d tokens, %d threads, %d prompt tokens a step, numerics %s; %s",
                dispatch.kernel_set(), facts.dtype, facts.num_blocks, facts.block_size, config.num_threads,
                facts.step_tokens, facts.numerics, _equality(executor))
    worker = Worker(executor, Agreement(group), die=partial(process.leave, 1, config.socket_path))
    asyncio.run(serve(config, facts, worker))


def _equality(executor: Executor) -> str:
    if executor.decoder.keeps_tp_equality:
        return "the same bits on 1, 2, 4 or 8 shards"
    return f"other bits on another number of shards: {executor.decoder.inequality}"


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


if __name__ == "__main__":
    main()
