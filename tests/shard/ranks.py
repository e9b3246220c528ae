"""Running programs on a group of one or more ranks; those of a larger group are processes of their own."""

import functools
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.synchronize import Barrier
from pathlib import Path
from unittest import mock

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from penstock.contract.plan import Plan
from penstock.contract.row_result import RowResult, TopLogprobs
from penstock.shard.communication.distributed import Group, connect
from penstock.shard.config import ShardConfig
from penstock.shard.execution import executor as executors
from penstock.shard.execution.executor import Executor
from penstock.shard.execution.masks import Masks
from tests.shard.spawned_ranks import Results, run_ranks
from tests.shard.step_programs import Program

KV_MEMORY = 64 << 20


@dataclass(frozen=True)
class Sampled:
    """One token of a request's output, what it was chosen from, and the prompt logprobs that came before it."""

    logits: bytes
    token_id: int
    logprob: float
    top_logprobs: tuple[TopLogprobs, ...] = ()
    prompt_logprobs: tuple[float, ...] = ()
    prompt_top_logprobs: tuple[TopLogprobs, ...] = ()


Outputs = list[list[Sampled]]            # per request


def make_config(model: Path, dtype: str | None = None, kv_cache_dtype: str | None = None) -> ShardConfig:
    return ShardConfig(model=model, dtype=dtype, kv_cache_dtype=kv_cache_dtype, kv_memory=KV_MEMORY, threads=1)


def run(
    config: ShardConfig, programs: Sequence[Program], folder: Path, world_size: int = 1,
    adapters: Mapping[int, Path] | None = None,
) -> list[Outputs]:
    """The outputs of each program, which all run on one group, one after the other."""
    (outputs,) = run_each([config], programs, folder, world_size, adapters)
    return outputs


def run_each(
    configs: Sequence[ShardConfig], programs: Sequence[Program], folder: Path, world_size: int = 1,
    adapters: Mapping[int, Path] | None = None,
) -> list[list[Outputs]]:
    """What `run` returns for each of these models, on one group that loads one after the other."""
    if world_size == 1:
        return [_run_rank(config, programs, Group(), adapters) for config in configs]
    rendezvous = f"file://{folder / 'store'}"
    configs = [replace(config, world_size=world_size, rendezvous=rendezvous) for config in configs]
    results = run_ranks(functools.partial(_run_on_rank, configs, programs, adapters), world_size, folder)
    (found,) = [each["outputs"] for each in results if each]
    outputs: list[list[Outputs]] = pickle.loads(found)
    return outputs


def _run_rank(
    config: ShardConfig, programs: Sequence[Program], group: Group, adapters: Mapping[int, Path] | None
) -> list[Outputs]:
    executor = Executor(config, group)
    for number, path in (adapters or {}).items():
        executor.adapters.load(number, path).result()
    return [run_program(executor, program) for program in programs]


def run_program(executor: Executor, program: Program) -> Outputs:
    """On the rank that answers. What the KV memory held before is poison: all bits set are NaN in every format."""
    for cache in executor.memory.caches:
        cache.data.fill_(0xFF)
    executor.open(program.limits)
    outputs: Outputs = [[] for _ in range(program.limits.max_slots)]
    collected: list[list[RowResult]] = [[] for _ in outputs]
    for index, (step, owners) in enumerate(zip(program.steps, program.owners, strict=True)):
        masks = program.masks(index, executor.memory.bounds.vocab_size)
        results, sampled_from = execute(executor, step, masks)
        if sampled_from is None:
            continue
        logits = iter(sampled_from)
        with_results = [row.slot for row in step.rows if row.is_sampled or len(row.prompt_logprob_ids)]
        assert with_results == [row.slot for row in results]
        for owner, result in zip(owners, results, strict=True):
            collected[owner].append(result)
            if result.token_ids:
                assert result.slot not in masks or is_allowed(masks[result.slot][0], result.token_ids[0])
                outputs[owner].append(_collect(next(logits).tobytes(), collected[owner]))
                collected[owner] = []
    return outputs


def execute(
    executor: Executor, step: Plan, masks: Masks, catches_up: bool = True
) -> tuple[tuple[RowResult, ...], npt.NDArray[np.float32] | None]:
    """Run a step; returns its results and the logits that were sampled from, which only the rank that answers has.
    Ranks that do not catch up may owe one another something afterwards, as while the next step is on its way."""
    computed: list[Tensor | None] = []

    def forward(step: Plan) -> executors.Outputs:
        outputs = Executor.forward(executor, step)
        computed.append(outputs.logits)
        return outputs

    with mock.patch.object(executor, "forward", forward):
        result = executor.execute(step, lambda: masks) if catches_up else executor.finish(
            executor.launch(step, lambda: masks))
    (logits,) = computed
    if logits is None:
        return result.rows, None
    assert torch.isfinite(logits).all()
    return result.rows, logits.cpu().numpy()


def is_allowed(mask: npt.NDArray[np.int32], token_id: int) -> bool:
    return bool(int(mask[token_id // 32]) >> token_id % 32 & 1)


def _collect(logits: bytes, results: list[RowResult]) -> Sampled:
    """The last of the results has a token; all may have prompt logprobs."""
    return Sampled(
        logits, results[-1].token_ids[0], results[-1].logprobs[0], results[-1].top_logprobs,
        tuple(logprob for result in results for logprob in result.prompt_logprobs),
        tuple(top for result in results for top in result.prompt_top_logprobs))


def _run_on_rank(
    configs: Sequence[ShardConfig], programs: Sequence[Program], adapters: Mapping[int, Path] | None,
    rank: int, world_size: int, folder: Path, barrier: Barrier,
) -> Results:
    group = connect(configs[0].rendezvous, rank, world_size)
    outputs = [_run_rank(replace(config, rank=rank), programs, group, adapters) for config in configs]
    group.close()
    answering = world_size - world_size // configs[0].pipeline_parallel_size
    return {"outputs": pickle.dumps(outputs)} if rank == answering else {}
