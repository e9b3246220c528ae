"""Runs the largest step once, to see what memory a GPU has left for keys and values."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from penstock.contract.row import Row
from penstock.contract.sampling import Sampling
from penstock.contract.stream_limits import StreamLimits
from penstock.kernels.sample.parameters import PARAMETERS
from penstock.shard.config import ShardConfig
from penstock.shard.devices import gpu
from penstock.shard.execution.captures import new_graphs
from penstock.shard.execution.executor import Executor
from penstock.shard.execution.gpu_memory import Needs, blocks_that_fit, check_room, graph_bytes, largest_lengths
from penstock.shard.execution.graphs import StepGraphs
from penstock.shard.execution.slots import Bounds
from penstock.shard.startup.measure import prompts

log = logging.getLogger(__name__)

ALL_SAMPLERS = Sampling(**{
    parameter.name: parameter.on for parameter in PARAMETERS if parameter.name != "of_logprobs"})
"""All parameters that go together."""


def fit_kv_memory(executor: Executor, config: ShardConfig) -> int:
    """Give the executor, whose shard computes on a GPU, the KV memory that fits, or that --kv-memory asks for. Returns
    the bytes that the largest step takes beside it, the weights and the graphs.

    All ranks call it together. Raises KvMemoryError.
    """
    if executor.memory.bounds.is_whole:
        return gpu.measure(partial(run_largest_step, executor, config)).work
    memory, graphs = executor.memory, new_graphs(executor)
    caches = _cache_bytes(executor)
    step = gpu.measure(partial(run_largest_step, executor, config))
    results = _run_largest(graphs)
    captured = gpu.measure(partial(_run_largest, graphs))
    needs = Needs(
        total=step.total, foreign=step.foreign, tensors=step.peak - caches,
        graphs=graph_bytes(captured.work, results, sum(len(each.paddings) for each in graphs)))
    del graphs                           # which holds on to the caches
    num_blocks = blocks_that_fit(memory.kv_shape, needs, config, memory.bounds.context_length)
    log.info("GPU memory: %.2f GiB, of which others use %.2f, weights and the largest step %.2f, graphs %.2f, "
             "keys and values %.2f", *(size / 2**30 for size in (
                 needs.total, needs.foreign, needs.tensors, needs.graphs, num_blocks * memory.kv_shape.block_bytes)))
    if num_blocks != memory.bounds.num_blocks:
        memory.allocate(num_blocks)
    return step.work


def check_memory(executor: Executor, config: ShardConfig, largest_step: int) -> None:
    """Run the largest step, which takes so many bytes, once more: beside all that stays, some of which the trial could
    only estimate. All ranks call it together. Raises KvMemoryError, or torch's own error for memory that is in pieces.
    """
    free = gpu.obtainable_memory(config.cuda_memory_fraction)
    check_room(config, largest_step, free, _cache_bytes(executor))
    run_largest_step(executor, config)


def _run_largest(graphs: Sequence[StepGraphs]) -> int:
    """Run the largest steps that are to be captured; returns the bytes of what all captured ones return."""
    return sum(each.run_largest() for each in graphs)


def _cache_bytes(executor: Executor) -> int:
    return sum(cache.data.nbytes for cache in [*executor.memory.caches, *executor.drafter.caches])


def run_largest_step(executor: Executor, config: ShardConfig) -> None:
    """Run as many tokens and rows as a step may have, sampled in every way, with tables as wide as the context makes
    them: attention shares a long sequence among programs, and has room for what each makes of it, in every row. It
    leaves the executor without slots."""
    bounds = executor.memory.bounds
    lengths = largest_lengths(bounds, config.max_step_tokens, config.max_step_rows)
    width = -(-bounds.context_length // bounds.block_size)
    executor.open(StreamLimits(max_slots=len(lengths), max_step_tokens=sum(lengths), max_blocks_per_slot=width))
    step = prompts(bounds, lengths, ALL_SAMPLERS)
    caches = executor.memory.caches
    if caches and all(len(cache.data) for cache in caches):  # else a sequence's memory is there from its first token on
        for cache in caches:
            cache.data[0].zero_()        # which was never written, and is read now
        step = replace(step, rows=(_at_end(step.rows[0], bounds), *step.rows[1:]))
    executor.execute(step)
    executor.close()


def _at_end(row: Row, bounds: Bounds) -> Row:
    """Returns a new prompt's row as the last chunk of the longest prompt there is, all of it in block 0."""
    assert row.initial_state is not None, "a new prompt"
    context, initial_state = bounds.context_length, row.initial_state
    history_ids = tuple(np.resize(initial_state.history_ids, context).tolist())
    return row._replace(
        start=context - row.num_inputs, new_blocks=(0,) * -(-context // bounds.block_size),
        initial_state=replace(initial_state, prompt_length=context, history_ids=history_ids))
