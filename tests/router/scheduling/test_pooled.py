"""Sequences that yield a vector or scores in place of tokens, and texts that are computed in one step each."""

from dataclasses import replace

import pytest

from penstock.contract.output import Output
from penstock.contract.plan import Plan
from penstock.contract.pooling import POOLED, Task
from penstock.contract.row_result import OtherResult, RowResult
from penstock.contract.step_result import StepResult
from penstock.router.scheduling.confirmed import Confirmed, Other, Pooled
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.plan_builder import MAX_TRIED
from penstock.router.scheduling.priorities import BACKGROUND
from penstock.router.scheduling.scheduler import Scheduler
from penstock.router.scheduling.sequence import Sequence
from penstock.router.scheduling.step_budget import StepBudget
from penstock.router.scheduling.wait_reasons import WaitReason
from tests.router.scheduling.small_schedulers import make_scheduler, make_sequence, num_cached, planned, spans


def whole(max_slots: int = 8, max_step_tokens: int = 32, budget: int = 32) -> Scheduler:
    return Scheduler(block_size=4, num_blocks=0, max_slots=max_slots, max_step_tokens=max_step_tokens,
                     shares_prefixes=False, is_whole=True, budget=StepBudget(budget, 1, budget))


def pooled(id: int, length: int, task: Task = Task.EMBED, priority: int = 0) -> Sequence:
    sequence = make_sequence(id, length, max_new=0, priority=priority)
    return replace(sequence, pooled=task, computes_all=task is Task.EMBED_ALL)


def commit(scheduler: Scheduler, plan: Plan) -> list[Confirmed]:
    """The value of a row is where it begins and ends."""
    return scheduler.commit(StepResult(plan.step_id, tuple(
        RowResult(row.slot, (), (), others=(OtherResult(POOLED, bytes([row.start, row.end])),))
        for row in plan.rows if row.output is Output.POOL)))


def test_a_prefill_ends_with_a_vector() -> None:
    scheduler = make_scheduler(max_step_tokens=16)
    scheduler.add(pooled(1, 20))
    first, last = planned(scheduler), planned(scheduler)
    assert [row.output for plan in (first, last) for row in plan.rows] == [Output.NONE, Output.POOL]
    assert scheduler.plan() is None, "no token follows"
    assert commit(scheduler, first) == []
    assert commit(scheduler, last) == [Pooled(1, 16, 4, bytes([16, 20]), FinishReason.POOLED)]
    assert (scheduler.num_running, scheduler.memory.num_held) == (0, 0)


def test_each_chunk_has_the_vectors_of_its_tokens() -> None:
    scheduler = make_scheduler(max_step_tokens=16)
    scheduler.add(pooled(1, 20, Task.EMBED_ALL))
    assert commit(scheduler, planned(scheduler)) == [Pooled(1, 0, 16, bytes([0, 16]), None)]
    assert commit(scheduler, planned(scheduler)) == [Pooled(1, 16, 4, bytes([16, 20]), FinishReason.POOLED)]


def test_other_results_of_the_row_come_before() -> None:
    scheduler = make_scheduler()
    scheduler.add(pooled(1, 4))
    plan = planned(scheduler)
    others = (OtherResult("made up", b"x"), OtherResult(POOLED, b"y"))
    result = StepResult(plan.step_id, (RowResult(plan.rows[0].slot, (), (), others=others),))
    assert scheduler.commit(result) == [Other(1, 4, "made up", b"x"), Pooled(1, 0, 4, b"y")]


def test_the_prefix_cache_is_used_and_filled() -> None:
    scheduler = make_scheduler()
    scheduler.add(pooled(1, 12))
    commit(scheduler, planned(scheduler))
    assert num_cached(scheduler) == 3
    scheduler.add(pooled(1, 12))
    assert spans(planned(scheduler)) == [(0, 8, 4)], "one block is computed, for the last token's vector"


def test_what_is_made_of_all_tokens_takes_nothing_from_the_prefix_cache() -> None:
    scheduler = make_scheduler()
    for _ in range(2):
        scheduler.add(pooled(1, 12, Task.EMBED_ALL))
        plan = planned(scheduler)
        assert spans(plan) == [(0, 0, 12)]
        commit(scheduler, plan)


def test_a_text_may_fill_the_memory() -> None:
    scheduler = make_scheduler(num_blocks=4)
    scheduler.add(pooled(1, 16))
    [result] = commit(scheduler, planned(scheduler))
    assert isinstance(result, Pooled)


def test_whole_texts_have_no_blocks_and_are_not_cut() -> None:
    scheduler = whole()
    for id, length in enumerate((10, 10, 10, 10)):
        scheduler.add(pooled(id, length))
    first = planned(scheduler)
    assert [(row.num_inputs, row.new_blocks, row.output) for row in first.rows] == [(10, (), Output.POOL)] * 3
    assert scheduler.occupancy.waits == {WaitReason.BUDGET: 1}
    second = planned(scheduler)
    assert [row.num_inputs for row in second.rows] == [10]
    assert [each.sequence_id for each in commit(scheduler, first)] == [0, 1, 2]
    assert [each.sequence_id for each in commit(scheduler, second)] == [3]


def test_a_step_is_full_once_many_texts_did_not_fit() -> None:
    """Thousands may wait, and each step would look at all of them."""
    scheduler = whole(max_slots=31)
    for id in range(MAX_TRIED + 2):
        scheduler.add(pooled(id, 20))
    scheduler.add(pooled(MAX_TRIED + 2, 4))
    assert [row.num_inputs for row in planned(scheduler).rows] == [20]
    assert scheduler.occupancy.waits == {WaitReason.BUDGET: MAX_TRIED + 2}


def test_slots_of_whole_texts_are_cleared() -> None:
    scheduler = whole(max_slots=1)
    scheduler.add(pooled(0, 4))
    scheduler.add(pooled(1, 4))
    first = planned(scheduler)
    assert scheduler.plan() is None
    commit(scheduler, first)
    second = planned(scheduler)
    assert second.cleared_slots == (first.rows[0].slot,)
    assert second.rows[0].initial_state is not None


def test_a_shorter_text_fills_the_step_and_the_longer_one_begins_the_next() -> None:
    scheduler = whole()
    for id, length in enumerate((20, 30, 12)):
        scheduler.add(pooled(id, length))
    assert [row.num_inputs for row in planned(scheduler).rows] == [20, 12]
    assert [row.num_inputs for row in planned(scheduler).rows] == [30]


def test_a_text_that_is_longer_than_a_step_should_be_has_one_of_its_own() -> None:
    scheduler = whole(max_step_tokens=64, budget=16)
    for id, length in enumerate((40, 2, 10)):
        scheduler.add(pooled(id, length))
    assert [row.num_inputs for row in planned(scheduler).rows] == [40]
    assert [row.num_inputs for row in planned(scheduler).rows] == [2, 10]


def test_one_that_needs_more_than_a_step_may_have_is_no_sequence_of_it() -> None:
    with pytest.raises(AssertionError):
        whole().add(pooled(0, 33))


def test_whole_texts_are_computed_again_when_the_group_dies() -> None:
    scheduler = whole()
    for id in range(3):
        scheduler.add(pooled(id, 4))
    planned(scheduler)
    forgotten = scheduler.forget_all()
    assert (forgotten.num_replayed, forgotten.given_up) == (3, ())
    scheduler.resize(0)
    assert len(commit(scheduler, planned(scheduler))) == 3
    assert not scheduler.suspects.are_on_trial


def test_one_that_kills_the_group_is_given_up_and_the_others_are_answered() -> None:
    scheduler, answered = whole(), set()
    for id in range(8):
        scheduler.add(pooled(id, 3))
    given_up: list[int] = []
    while scheduler.num_waiting or scheduler.num_running:
        plan = planned(scheduler)
        if any(row.token_ids[0] == 500 for row in plan.rows):
            given_up += scheduler.forget_all().given_up
        else:
            answered |= {each.sequence_id for each in commit(scheduler, plan)}
    assert (given_up, answered) == ([5], {0, 1, 2, 3, 4, 6, 7})


def test_one_of_a_lower_priority_comes_later() -> None:
    scheduler = whole()
    scheduler.add(pooled(0, 20, priority=1))
    scheduler.add(pooled(1, 20))
    assert [row.token_ids[0] for row in planned(scheduler).rows] == [100]


def test_whole_texts_of_the_background_keep_running_while_others_wait_for_the_next_step() -> None:
    """Others wait for no blocks that the background could have."""
    scheduler = whole(max_slots=31)
    scheduler.add(pooled(0, 20, priority=BACKGROUND))
    first = planned(scheduler)
    for id in (1, 2):
        scheduler.add(pooled(id, 30))
    second = planned(scheduler)
    assert second.preempted == ()
    assert [each.sequence_id for each in commit(scheduler, first)] == [0]
