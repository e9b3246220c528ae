"""Finds how many prompt tokens fit in a step, by running some."""

from collections.abc import Sequence
from dataclasses import replace
from math import isnan

import numpy as np
import torch

from penstock.contract.initial_state import InitialState
from penstock.contract.output import Output
from penstock.contract.plan import Plan
from penstock.contract.pooling import POOLED
from penstock.contract.row import Row
from penstock.contract.sampling import Sampling
from penstock.contract.step_result import StepResult
from penstock.contract.stream_limits import StreamLimits
from penstock.shard.communication.distributed import Group
from penstock.shard.execution.executor import Executor
from penstock.shard.execution.slots import Bounds
from penstock.shard.weights.stored import CheckpointError

GREEDY = Sampling()
TARGET_SECONDS = 0.25
GRAIN = 16                               # tokens; the answer is a multiple of it
MAX_TOKENS = 4096                        # TGI's default for max_batch_prefill_tokens


def measure_step_tokens(executor: Executor, group: Group, most: int = MAX_TOKENS) -> int:
    """Returns how many prompt tokens one step runs in about 250 ms, a multiple of 16 from 16 to `most`.

    It runs ever larger steps until one takes half of that, all ranks together: the slowest one's clock counts, and the
    smallest KV memory of the group. It leaves the executor without slots, as it was before.
    """
    bounds = smallest_bounds(executor, group)
    prompt_blocks = -(-bounds.context_length // bounds.block_size)
    limit = min(most, room(bounds))
    max_prompts = -(-limit // bounds.context_length)
    executor.open(StreamLimits(max_slots=max_prompts, max_step_tokens=limit, max_blocks_per_slot=prompt_blocks))
    _check(executor.execute(full_prompts(bounds, min(GRAIN, limit))))  # this step also pays for what happens once
    num_tokens = min(GRAIN, limit)
    seconds = _seconds(executor, group, num_tokens)
    while seconds < TARGET_SECONDS / 2 and num_tokens * 2 <= limit:
        num_tokens *= 2
        seconds = _seconds(executor, group, num_tokens)
    executor.close()
    return max(GRAIN, min(most, int(num_tokens * TARGET_SECONDS / seconds) // GRAIN * GRAIN))


def settle_step_tokens(executor: Executor, group: Group, most: int = MAX_TOKENS) -> int:
    """Returns how many prompt tokens one step runs in about 250 ms: what the shards before these have measured, or what
    is measured now. Either way a step has run when it returns. All ranks call it together.

    The memory that earlier shards left is of use only if every rank has its part of it.
    """
    kept = executor.memory.kept
    found = kept.found if kept else None
    known = [found.step_tokens, found.is_whole] if found else [0, False]
    step_tokens, is_whole = group.all_gather(torch.tensor(known)).min(dim=0).values.tolist()
    if kept and not is_whole:
        kept.forget()
    if not step_tokens:
        return measure_step_tokens(executor, group, most)
    with executor.memory.aside(num_blocks=1):
        executor.open(StreamLimits(max_slots=1, max_step_tokens=GRAIN, max_blocks_per_slot=1))
        _check(executor.execute(full_prompts(executor.memory.bounds, 1)))
        executor.close()
    return int(step_tokens)


def _check(result: StepResult) -> None:
    """Raises CheckpointError if a model computes NaN where no request has a part in it. The rank that answers
    alone has results."""
    pooled = (np.frombuffer(other.value, "<f4") for row in result.rows for other in row.others if other.kind == POOLED)
    if any(isnan(logprob) for row in result.rows for logprob in row.logprobs) or any(
            np.isnan(numbers).any() for numbers in pooled):
        raise CheckpointError("the model computes something that is not a number (NaN): its weights are damaged, or "
                              "too large for their number format (--dtype)")


def _seconds(executor: Executor, group: Group, num_tokens: int) -> float:
    """Returns the slowest rank's time for a step, that of the last stage if there are several. The results are there,
    so both times hold all that a GPU had to do."""
    result = executor.execute(full_prompts(executor.memory.bounds, num_tokens))
    taken = torch.tensor([result.draft_ns + result.forward_ns + result.sample_ns])
    return int(group.all_gather(taken).max()) / 1e9


def smallest_bounds(executor: Executor, group: Group) -> Bounds:
    """Returns the executor's bounds, with as many blocks and states as every rank of the group has. All ranks call it
    together."""
    bounds = executor.memory.bounds
    own = torch.tensor([bounds.num_blocks, bounds.num_states or 0])
    num_blocks, num_states = group.all_gather(own).min(dim=0).values.tolist()
    return replace(bounds, num_blocks=num_blocks, num_states=num_states or None)


def room(bounds: Bounds) -> int:
    """Returns how many tokens of `full_prompts` the KV memory holds; it sets no bound to texts that are computed whole.
    """
    if bounds.is_whole:
        return MAX_TOKENS
    prompt_blocks = -(-bounds.context_length // bounds.block_size)
    num_prompts = bounds.num_blocks // prompt_blocks
    if bounds.num_states is not None:
        num_prompts = min(num_prompts, bounds.num_states)
    return num_prompts * bounds.context_length or bounds.num_blocks * bounds.block_size


def full_prompts(bounds: Bounds, num_tokens: int) -> Plan:
    """Makes a step of prompts as long as the context allows, `num_tokens` in all."""
    context = bounds.context_length
    return prompts(bounds, [min(context, num_tokens - begin) for begin in range(0, num_tokens, context)])


def prompts(bounds: Bounds, lengths: Sequence[int], sampling: Sampling = GREEDY) -> Plan:
    """Makes a step of new prompts, each in a slot and in blocks of its own unless the model computes it whole, after
    each of which a token is sampled, or of each of which a vector is made."""
    rows = []
    first_block = 0
    for slot, length in enumerate(lengths):
        end_block = first_block + -(-length // bounds.block_size)
        ids = tuple(position % bounds.vocab_size for position in range(length))
        rows.append(Row(
            slot=slot, start=0, token_ids=ids,
            new_blocks=() if bounds.is_whole else tuple(range(first_block, end_block)),
            output=Output.POOL if bounds.makes_vectors else Output.SAMPLE,
            initial_state=InitialState(sampling, length, ids if sampling.needs_history else ())))
        first_block = end_block
    return Plan(0, tuple(rows))
