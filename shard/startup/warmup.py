"""Runs steps of all kinds before the first request, for a kernel is compiled when it is launched for the first time.

Of what changes from step to step, three things make a kernel of their own. Attention has one for each power of two of
rows; the fixed order of matmuls has tiles for each power of two of tokens; and the likeliest tokens are found 8, 16, 32
and so on at a time. So the steps here have both ends of each of these ranges, and little else in them.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.contract.sampling import Sampling
from penstock.contract.stream_limits import StreamLimits
from penstock.shard.communication.distributed import Group
from penstock.shard.config import ShardConfig
from penstock.shard.execution.executor import Executor
from penstock.shard.execution.masks import WORD, Masks
from penstock.shard.execution.prompt_logprobs import SLICE
from penstock.shard.execution.slots import Bounds
from penstock.shard.progress import LoadProgress
from penstock.shard.startup.measure import full_prompts, prompts, room, smallest_bounds
from penstock.shard.startup.trial import ALL_SAMPLERS

TOP_WIDTHS = (0, 8, 16, 32)              # of likeliest tokens; who allows more than 32 of them waits for the first


def warm_up(
    executor: Executor, group: Group, config: ShardConfig, progress: LoadProgress | None = None
) -> None:
    """Run the steps, on all ranks together. It leaves the executor without slots, as it was before."""
    bounds = smallest_bounds(executor, group)
    steps = list(warm_up_steps(bounds, config.max_step_tokens, config.max_step_rows))
    rows = [row for step in steps for row in step.rows]
    executor.open(StreamLimits(
        max_slots=max(row.slot for row in rows) + 1,
        max_step_tokens=max(sum(row.num_inputs for row in step.rows) for step in steps),
        max_blocks_per_slot=-(-max(row.end for row in rows) // bounds.block_size)))
    for step in (progress or LoadProgress()).each(steps, "Compiling kernels", "step"):
        executor.execute(step, partial(_all_allowed, step, bounds.vocab_size))
    executor.close()


def warm_up_steps(bounds: Bounds, max_tokens: int, max_rows: int) -> Iterator[Plan]:
    """Yields the steps. They keep within the KV memory and what a step may have, but that two tokens are always
    allowed."""
    max_tokens = max(2, min(max_tokens, room(bounds)))
    if bounds.makes_vectors:
        yield from (full_prompts(bounds, number) for number in sizes(max_tokens))
        return
    states = max_rows if bounds.num_states is None else bounds.num_states
    for number in sizes(min(max_rows, states, max(1, bounds.num_blocks - 1), max_tokens - 1)):
        yield prompts(bounds, [1] * (number - 1) + [2], ALL_SAMPLERS)
    for number in sizes(max_tokens):
        yield full_prompts(bounds, number)
    for number in sizes(min(SLICE, max_tokens, bounds.context_length)):
        yield _with_prompt_logprobs(bounds, number, 0)
    for width in TOP_WIDTHS:
        yield _with_prompt_logprobs(bounds, 1, min(width, bounds.vocab_size))
    yield prompts(bounds, [1], Sampling(of_logprobs=True, repetition_penalty=1.2))
    # What was sampled is the next input, and what a row has before is read again.
    yield Plan(0, (Row(
        slot=0, start=1, from_last_sample=True, new_blocks=(1,) if bounds.block_size == 1 else ()),))


def sizes(most: int) -> list[int]:
    """Returns the powers of two up to `most`, the number after each of them, and `most`."""
    powers = [1 << exponent for exponent in range(most.bit_length())]
    return sorted({size for power in powers for size in (power, power + 1) if size <= most} | {most})


def _with_prompt_logprobs(bounds: Bounds, length: int, top_n: int) -> Plan:
    """Makes a step of a prompt that waits for a mask and wants all its logprobs, with `top_n` top logprobs each."""
    sampling = replace(ALL_SAMPLERS, top_n=top_n, bias_ids=(0,), bias_values=(1.0,))
    [row] = prompts(bounds, [length], sampling).rows
    return Plan(0, (row._replace(late_mask=True, prompt_logprob_ids=row.token_ids),))


def _all_allowed(step: Plan, vocab_size: int) -> Masks:
    return {row.slot: np.full((row.num_samples, -(-vocab_size // WORD)), -1, np.int32)
            for row in step.rows if row.late_mask}
