"""Finds by trial whether a model keeps the bit contract: others' code promises nothing."""

from itertools import pairwise

import torch
from torch import Tensor

from penstock.contract.output import Output
from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.contract.stream_limits import StreamLimits
from penstock.shard.communication.distributed import Group
from penstock.shard.execution.executor import Executor
from penstock.shard.startup.measure import prompts, smallest_bounds

LENGTHS = (53, 17, 1)
CHUNK = 20                               # tokens of the first prompt that are computed beside the others
SINGLE = 3                               # of its last tokens, which come one by one, as those of an answer do


def keeps_bits(executor: Executor, group: Group) -> bool:
    """Tells whether the logits of a few prompts have the same bits computed alone and whole, together, in chunks with
    the tokens of others beside them, and token by token, as an answer is before it is replayed.

    All ranks call it together. It leaves the executor without slots, and its KV memory as it was: sequences may go on
    with what earlier shards have left there.
    """
    bounds = smallest_bounds(executor, group)
    lengths = [min(length, bounds.context_length) for length in LENGTHS[:bounds.num_states]]
    num_blocks = sum(-(-length // bounds.block_size) for length in lengths)
    with executor.memory.aside(num_blocks):
        is_kept = _compare(executor, prompts(bounds, lengths))
    verdict = torch.tensor([int(is_kept)])
    group.broadcast(verdict)
    return bool(verdict)


def _compare(executor: Executor, together: Plan) -> bool:
    """Tells whether the prompts of a step have the same logits alone and in chunks."""
    lengths = [len(row.token_ids) for row in together.rows]
    limits = StreamLimits(max_slots=len(lengths), max_step_tokens=sum(lengths),
                          max_blocks_per_slot=-(-max(lengths) // executor.memory.bounds.block_size))

    def logits_of(*steps: Plan) -> list[Tensor]:
        executor.open(limits)
        found = [executor.forward(step).logits for step in steps]
        executor.close()
        return [] if found[0] is None else [row for logits in found if logits is not None for row in logits.cpu()]

    first, *others = together.rows
    alone = [logits_of(Plan(0, (row,))) for row in together.rows]
    most = lengths[0] - 1
    begun, *rest = _cut(first, sorted({min(CHUNK, most), *range(max(1, most - SINGLE + 1), most + 1)}))
    in_chunks = logits_of(Plan(0, (begun, *others)),
                          *(Plan(number, (row,)) for number, row in enumerate(rest, start=1)))
    expected = [row for rows in alone for row in rows]
    return all(map(torch.equal, logits_of(together), expected)) and all(
        map(torch.equal, in_chunks, expected[1:] + expected[:1]))


def _cut(row: Row, positions: list[int]) -> list[Row]:
    """Returns a prompt's row as several, cut at these positions; a token is sampled after the last alone."""
    parts = [row._replace(start=begin, token_ids=row.token_ids[begin:end],
                          output=Output.SAMPLE if end == row.num_inputs else Output.NONE)
             for begin, end in pairwise([0, *positions, row.num_inputs])]
    return [parts[0], *(part._replace(new_blocks=(), initial_state=None, prompt_logprob_ids=()) for part in parts[1:])]
