"""Running programs on a group of one or more ranks; those of a larger group are processes of their own."""

import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from shard.config import ShardConfig
from shard.distributed import Group, connect
from shard.executor import Executor
from tests.shard.programs import Program

KV_MEMORY = 64 << 20
ROOT = Path(__file__).parents[2]
MAIN = "import sys; from tests.shard.ranks import run_job; run_job(sys.argv[1], int(sys.argv[2]))"


@dataclass(frozen=True)
class Sampled:
    """One token of a request's output, and all that it was chosen from."""

    logits: bytes
    token_id: int
    logprob: float


Outputs = list[list[Sampled]]            # per request


def make_config(model: Path, dtype: str | None = None) -> ShardConfig:
    return ShardConfig(model=model, dtype=dtype, kv_memory=KV_MEMORY, threads=1)


def run(config: ShardConfig, programs: Sequence[Program], folder: Path, world_size: int = 1) -> list[Outputs]:
    """The outputs of each program, which all run on one group, one after the other."""
    if world_size == 1:
        return _run_rank(config, programs, Group())
    config = replace(config, world_size=world_size, rendezvous=f"file://{folder / 'store'}")
    job = folder / "job"
    job.write_bytes(pickle.dumps((config, programs)))
    ranks = [
        subprocess.Popen([sys.executable, "-c", MAIN, str(job), str(rank)], cwd=ROOT)
        for rank in range(world_size)]
    try:
        codes = [rank.wait(120) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert codes == [0] * world_size
    outputs: list[Outputs] = pickle.loads((folder / "outputs").read_bytes())
    return outputs


def _run_rank(config: ShardConfig, programs: Sequence[Program], group: Group) -> list[Outputs]:
    executor = Executor(config, group)
    return [run_program(executor, program) for program in programs]


def run_program(executor: Executor, program: Program) -> Outputs:
    """On rank 0. What the KV memory held before is poison: all bits set are NaN in every format."""
    for cache in executor.caches:
        cache.data.fill_(0xFF)
    executor.open(program.limits)
    outputs: Outputs = [[] for _ in range(program.limits.max_slots)]
    for step, owners in zip(program.steps, program.owners, strict=True):
        logits = executor.logits(step)
        results = executor.sample(step, logits)
        if logits is not None:
            assert [row.slot for row in step.rows if row.is_sampled] == [result.slot for result in results]
            for owner, result, scores in zip(owners, results, logits.numpy(), strict=True):
                assert np.isfinite(scores).all()
                outputs[owner].append(Sampled(scores.tobytes(), result.token_ids[0], result.logprobs[0]))
    return outputs


def run_job(path: str, rank: int) -> None:
    """One rank of `run`, in a process of its own."""
    torch.set_num_threads(1)
    job = Path(path)
    config, programs = pickle.loads(job.read_bytes())
    group = connect(config.rendezvous, rank, config.world_size)
    outputs = _run_rank(replace(config, rank=rank), programs, group)
    if rank == 0:
        (job.parent / "outputs").write_bytes(pickle.dumps(outputs))
    group.close()
