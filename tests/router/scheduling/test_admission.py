"""Who begins to run, when, and with which blocks of others."""

import pytest

from penstock.contract.admission import Admission
from penstock.contract.output import Output
from penstock.router.scheduling.finish_reason import FinishReason
from tests.router.scheduling.small_schedulers import (
    answer,
    make_scheduler,
    make_sequence,
    num_cached,
    planned,
    spans,
    step,
)


@pytest.mark.parametrize(("length", "hit"), [(4, 0), (5, 4), (8, 4), (9, 8), (12, 8), (13, 12)])
def test_an_equal_prompt_begins_behind_the_blocks_that_it_shares(length: int, hit: int) -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, length))
    step(scheduler, 11)
    scheduler.add(make_sequence(2, tokens=range(100, 100 + length)))
    plan, _ = step(scheduler, 12, 12)
    assert plan.admitted == (Admission(2, hit_tokens=hit),)
    assert spans(plan) == [(0, length, 1), (1, hit, length - hit)]
    first, second = scheduler._batch.running
    assert first.blocks[:hit // 4] == second.blocks[:hit // 4]
    assert not set(first.blocks[hit // 4:]) & set(second.blocks[hit // 4:])


def test_the_shared_blocks_go_to_the_shard_with_the_first_row() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, 9))
    step(scheduler, 11)
    scheduler.add(make_sequence(2, tokens=[*range(100, 108), 7, 7, 7, 7, 7]))
    plan, _ = step(scheduler, 12, 21)
    assert [row.new_blocks for row in plan.rows] == [(), (0, 1, 3, 4)]


@pytest.mark.parametrize(("max_new", "hit"), [(4, 4), (5, 8), (6, 8)])
def test_generated_tokens_are_cached_as_prompt_tokens_are(max_new: int, hit: int) -> None:
    """All but the last token have been computed: of 4 + 5 tokens the first 8."""
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, 4, max_new))
    output = list(range(11, 11 + max_new))
    for token in output:
        step(scheduler, token)
    assert scheduler.num_running == 0
    scheduler.add(make_sequence(2, tokens=[100, 101, 102, 103, *output, 201, 202, 203, 204]))
    assert planned(scheduler).admitted == (Admission(2, hit_tokens=hit),)


def test_of_equal_prompts_that_arrive_together_one_is_computed() -> None:
    """The second waits for each block that the first is computing, and begins behind them all."""
    scheduler = make_scheduler()
    for id in (1, 2):
        scheduler.add(make_sequence(id, tokens=range(100, 113)))
    plans = [step(scheduler, *tokens)[0] for tokens in [(), (11,), (12, 11)]]
    assert [spans(plan) for plan in plans] == [[(0, 0, 8)], [(0, 8, 5)], [(0, 13, 1), (1, 12, 1)]]
    assert [plan.admitted for plan in plans] == [(Admission(1),), (), (Admission(2, hit_tokens=12),)]


def test_nobody_waits_for_a_block_that_holds_its_last_token() -> None:
    """Of 12 tokens two blocks can be matched, so the third is no reason to wait."""
    scheduler = make_scheduler()
    for id in (1, 2):
        scheduler.add(make_sequence(id, tokens=range(100, 112)))
    assert [spans(step(scheduler, *tokens)[0]) for tokens in [(), (11, 11)]] == [[(0, 0, 8)], [(0, 8, 4), (1, 8, 4)]]


def test_others_do_not_wait_with_the_one_that_waits_for_a_prefix() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, 6))
    scheduler.add(make_sequence(2, tokens=range(100, 106)))
    scheduler.add(make_sequence(3, tokens=range(100, 106), image=b"other"))
    scheduler.add(make_sequence(4, tokens=[100, 101, 102, 99, 104, 105]))
    plan, _ = step(scheduler, 11, 31)
    assert [admission.sequence_id for admission in plan.admitted] == [1, 3, 4]
    assert [(row.start, row.num_inputs, row.output) for row in plan.rows] == [
        (0, 6, Output.SAMPLE), (0, 6, Output.SAMPLE), (0, 4, Output.NONE)]


def test_who_waits_for_a_prefix_goes_on_alone_when_the_other_leaves() -> None:
    scheduler = make_scheduler()
    for id in (1, 2):
        scheduler.add(make_sequence(id, tokens=range(100, 113)))
    assert spans(step(scheduler)[0]) == [(0, 0, 8)]
    scheduler.finish(1, FinishReason.CANCELLED)
    assert spans(planned(scheduler)) == [(0, 8, 5)]


def test_nobody_waits_for_one_whose_block_came_second() -> None:
    """Sequence 2 computes tokens 11 to 14 in the step in which 1 does, so what it computes behind them stays its own.

    Sequence 3, with the prompt of 2, shares what 1 has and computes the rest itself.
    """
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, 4, max_new=20))
    for token in (11, 12, 13, 14):
        step(scheduler, token)
    tokens = [100, 101, 102, 103, 11, 12, 13, 14, *range(200, 216)]
    scheduler.add(make_sequence(2, tokens=tokens))
    assert spans(step(scheduler, 15)[0]) == [(0, 7, 1), (1, 4, 15)]
    scheduler.add(make_sequence(3, tokens=tokens))
    plan = planned(scheduler)
    assert spans(plan) == [(0, 8, 1), (1, 19, 5), (2, 8, 10)]
    assert plan.admitted == (Admission(3, hit_tokens=8),)


def test_nothing_is_shared_while_the_step_that_computes_it_is_in_flight() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, 4))
    plans = [planned(scheduler) for _ in range(6)]
    assert scheduler._batch.running[0].computed == 9
    numbers = []
    for plan, token in zip(plans, range(11, 17), strict=True):
        numbers.append(num_cached(scheduler))
        scheduler.commit(answer(plan, token))
    assert [*numbers, num_cached(scheduler)] == [0, 1, 1, 1, 1, 2, 2]


def test_nothing_is_shared_of_a_row_that_came_too_late() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, 9))
    plan = planned(scheduler)
    scheduler.finish(1, FinishReason.CANCELLED)
    scheduler.commit(answer(plan, 11))
    assert (num_cached(scheduler), scheduler.memory.pool.num_free) == (0, scheduler.memory.pool.num_blocks)


def test_a_smaller_request_passes_one_that_does_not_fit_64_times() -> None:
    """Sequence 2 needs all blocks but the one that 1 has. Three at a time, the others find a slot before it."""
    scheduler = make_scheduler(num_blocks=100)
    scheduler.add(make_sequence(1, 1, max_new=100))
    step(scheduler, 11)
    scheduler.add(make_sequence(2, 396, max_new=4))
    for id in range(3, 75):
        scheduler.add(make_sequence(id, 1, max_new=1))
    admitted = []
    for _ in range(30):
        plan = planned(scheduler)
        scheduler.commit(answer(plan, *[7] * len(plan.rows)))
        admitted.append([admission.sequence_id for admission in plan.admitted])
    assert admitted[:21] == [[id, id + 1, id + 2] for id in range(3, 66, 3)]
    assert admitted[21:] == [[66]] + [[]] * 8
    scheduler.finish(1, FinishReason.CANCELLED)
    assert planned(scheduler).admitted == (Admission(2),)


def test_a_running_prefill_keeps_the_blocks_that_it_will_need() -> None:
    """Sequence 1 has 4 of its 8 blocks and one to grow is kept: of the 6 that are left one is to be had."""
    scheduler = make_scheduler(num_blocks=10)
    scheduler.add(make_sequence(1, 32))
    step(scheduler)
    scheduler.add(make_sequence(2, 5))
    scheduler.add(make_sequence(3, 4))
    plan = planned(scheduler)
    assert [admission.sequence_id for admission in plan.admitted] == [3]


def test_four_answers_to_one_prompt_compute_it_once() -> None:
    """Of its 99 tokens the last three are in no full block: each answer computes them for itself."""
    scheduler = make_scheduler(max_slots=8, max_step_tokens=256)
    for id in range(1, 5):
        scheduler.add(make_sequence(id, tokens=range(100, 199)))
    rows = []
    for tokens in [(11,), (12, 12, 13, 14)]:
        rows += step(scheduler, *tokens)[0].rows
    assert sum(len(row.token_ids) for row in rows) == 99 + 3 * 3
    assert len({sequence.blocks[23] for sequence in scheduler._batch.running}) == 1
    assert len({sequence.blocks[24] for sequence in scheduler._batch.running}) == 4
