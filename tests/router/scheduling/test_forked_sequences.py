"""A made-up policy plugs in: it goes on with two continuations of an answer, and keeps one of them."""

import pytest

from penstock.router.scheduling.confirmed import Confirmed, Sampled
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.scheduler import Scheduler
from penstock.router.scheduling.sequence import Sequence
from tests.router.scheduling.invariants import check_blocks
from tests.router.scheduling.shard_mirror import Resident, ShardMirror, chain_of, sample
from tests.router.scheduling.small_schedulers import make_sequence

PROMPT = [*range(2, 13)]
NUM_BOTH = 6
"""How many tokens both continuations get before one is kept."""


class TwoWays:
    """Lets a sequence fork behind its first token, and later ends the way whose last token is smaller."""

    def __init__(self, scheduler: Scheduler, is_fork: bool) -> None:
        self.scheduler, self.is_fork = scheduler, is_fork
        self.ways = [make_sequence(0, tokens=PROMPT, max_new=20, ignore_eos=True, confirmed_only=True)]
        scheduler.add(self.ways[0])

    def committed(self, confirmed: list[Confirmed]) -> None:
        first = self.ways[0]
        if len(self.ways) == 1 and len(first.tokens) == len(PROMPT) + 1:
            assert isinstance(confirmed[-1], Sampled)
            other = Sequence(1, [*PROMPT, confirmed[-1].token_id + 1], len(PROMPT), first.max_length, first.sampling,
                             ignore_eos=True, confirmed_only=True)
            self.ways.append(other)
            if self.is_fork:
                self.scheduler.fork(other, first.id)
            else:
                self.scheduler.add(other)
        elif min(len(way.tokens) for way in self.ways) == len(PROMPT) + NUM_BOTH:
            worse = min(self.ways, key=lambda way: (way.tokens[len(PROMPT) + NUM_BOTH - 1], way.id))
            self.scheduler.finish(worse.id, FinishReason.CANCELLED)


def run(is_fork: bool, max_slots: int = 4, num_blocks: int = 40) -> tuple[list[list[int]], int, int]:
    """The tokens of both ways, and how many inputs and copies all plans had."""
    scheduler = Scheduler(block_size=4, num_blocks=num_blocks, max_slots=max_slots, max_step_tokens=32)
    shard, policy, num_inputs, num_copies = ShardMirror(4, num_blocks), TwoWays(scheduler, is_fork), 0, 0
    while plan := scheduler.plan():
        by_slot = {way.slot: way for way in policy.ways if way.slot is not None}
        check_blocks(scheduler, [*by_slot.values()])
        firsts = {row.slot: Resident(chain_of(0, by_slot[row.slot].tokens)[:row.start + 1], 0, 0)
                  for row in plan.rows if row.initial_state is not None}
        policy.committed(scheduler.commit(shard.run(plan, firsts, {})))
        num_inputs, num_copies = num_inputs + plan.num_tokens, num_copies + len(plan.block_copies)
    assert scheduler.memory.num_held == 0
    assert len(scheduler._batch.free_slots) == max_slots
    return [way.tokens for way in policy.ways], num_inputs, num_copies


@pytest.mark.parametrize(("max_slots", "num_blocks"), [(4, 40), (1, 40), (4, 9)])
def test_both_ways_are_what_follows_from_their_tokens(max_slots: int, num_blocks: int) -> None:
    ways, _, _ = run(True, max_slots, num_blocks)
    for tokens, known in zip(ways, (len(PROMPT), len(PROMPT) + 1), strict=True):
        for end in range(known, len(tokens)):
            assert tokens[end] == sample(chain_of(0, tokens[:end])[-1], 0, None)
    assert max(map(len, ways)) == len(PROMPT) + 20


def test_a_fork_computes_nothing_again() -> None:
    ways, num_inputs, num_copies = run(True)
    others, num_inputs_of_added, no_copies = run(False)
    assert ways == others
    assert (num_copies, no_copies) == (1, 0)
    assert num_inputs == num_inputs_of_added - len(PROMPT) % 4


@pytest.mark.parametrize("ended", [0, 1])
def test_either_way_may_end_before_the_copy_is_made(ended: int) -> None:
    scheduler = Scheduler(block_size=4, num_blocks=9, max_slots=4, max_step_tokens=32)
    shard, policy = ShardMirror(4, 9), TwoWays(scheduler, True)
    plan = scheduler.plan()
    assert plan is not None
    policy.committed(scheduler.commit(shard.run(plan, {plan.rows[0].slot: Resident([0], 0, 0)}, {})))
    assert [way.slot is not None for way in policy.ways] == [True, True]
    scheduler.finish(ended, FinishReason.CANCELLED)
    plan = scheduler.plan()
    assert plan is not None
    assert len(plan.block_copies) == 1 - ended, "it is made for the fork alone, from a block that is still there"
    check_blocks(scheduler, [policy.ways[1 - ended]])
    left = policy.ways[1 - ended]
    firsts = {row.slot: Resident(chain_of(0, left.tokens)[:row.start + 1], 0, 0) for row in plan.rows
              if row.initial_state is not None}
    scheduler.commit(shard.run(plan, firsts, {}))
    assert len(left.tokens) == len(PROMPT) + 2
