"""A lost group: everything is computed again."""

import pytest

from penstock.contract.admission import Admission
from penstock.contract.initial_state import InitialState
from penstock.contract.plan import Plan
from penstock.contract.sampling import Sampling
from penstock.router.scheduling.confirmed import Forgotten
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.priorities import BACKGROUND
from penstock.router.scheduling.scheduler import Scheduler
from tests.router.scheduling.small_schedulers import (
    answer,
    make_scheduler,
    make_sequence,
    num_cached,
    planned,
    step,
)


def lose_a_step(scheduler: Scheduler) -> tuple[Plan, Forgotten]:
    """The group dies in the next step."""
    return planned(scheduler), scheduler.forget_all()


def test_everything_waits_again_with_its_output_as_input() -> None:
    scheduler = make_scheduler()
    sampling = Sampling(share_penalty=0.5)
    scheduler.add(make_sequence(1, 4, sampling=sampling))
    scheduler.add(make_sequence(2, 4))
    step(scheduler, 11, 21)
    step(scheduler, 12, 22)
    scheduler.add(make_sequence(3, 2))
    assert scheduler.forget_all() == Forgotten(num_replayed=2, given_up=())
    assert (scheduler.num_running, scheduler.num_waiting) == (0, 3)
    scheduler.resize(scheduler.memory.pool.num_blocks)
    assert (num_cached(scheduler), scheduler.memory.pool.num_free) == (0, scheduler.memory.pool.num_blocks)
    plan, _ = step(scheduler, 13, 23, 31)
    assert (plan.step_id, plan.cleared_slots) == (0, ())
    assert plan.admitted == (Admission(1), Admission(2), Admission(3))
    assert [row.token_ids for row in plan.rows] == [
        (100, 101, 102, 103, 11, 12), (200, 201, 202, 203, 21, 22), (300, 301)]
    assert plan.rows[0].initial_state == InitialState(sampling, 4, (100, 101, 102, 103, 11, 12))


def test_beams_that_go_on_are_one_request() -> None:
    scheduler = make_scheduler()
    for sequence in (make_sequence(1, 4), make_sequence(2, 4, age=1), make_sequence(3, 4)):
        scheduler.add(sequence)
    planned(scheduler)
    assert scheduler.forget_all() == Forgotten(num_replayed=2, given_up=())


def test_a_memory_that_is_still_there_saves_what_results_came_back_of() -> None:
    """The first block of each is full and its result is back; of 2 the second block is, but its result is not."""
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, 4))
    scheduler.add(make_sequence(2, 7))
    step(scheduler, 11, 21)
    planned(scheduler)
    scheduler.forget_all()
    assert num_cached(scheduler) == 2
    plan = planned(scheduler)
    assert plan.admitted == (Admission(1, 4), Admission(2, 4))
    assert [(row.start, row.token_ids) for row in plan.rows] == [(4, (11,)), (4, (204, 205, 206, 21))]


def test_what_follows_a_loss_is_always_the_same() -> None:
    scheduler = make_scheduler(max_slots=8)
    for id in range(1, 9):
        scheduler.add(make_sequence(id, 2))
    step(scheduler, *range(11, 19))
    scheduler.forget_all()
    assert [row.slot for row in planned(scheduler).rows] == [7, 6, 5, 4, 3, 2]


def test_results_of_a_lost_step_are_refused() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1))
    plan, _ = lose_a_step(scheduler)
    with pytest.raises(AssertionError, match="result of step 0, but none is in flight"):
        scheduler.commit(answer(plan, 11))


def test_a_loss_gives_back_what_finished_sequences_held() -> None:
    scheduler = make_scheduler(max_slots=2)
    for id in (1, 2):
        scheduler.add(make_sequence(id))
    planned(scheduler)
    scheduler.finish(1, FinishReason.CANCELLED)
    scheduler.finish(2, FinishReason.CANCELLED)
    assert scheduler.forget_all() == Forgotten(0, ())
    assert scheduler.memory.pool.num_free == scheduler.memory.pool.num_blocks
    for id in (3, 4):
        scheduler.add(make_sequence(id))
    assert sorted(row.slot for row in planned(scheduler).rows) == [0, 1]


def test_memory_is_resized_only_while_nobody_holds_any() -> None:
    scheduler = make_scheduler(num_blocks=6)
    scheduler.add(make_sequence(1))
    step(scheduler, 11)
    with pytest.raises(AssertionError):
        scheduler.resize(5)
    scheduler.forget_all()
    scheduler.resize(5)
    assert (scheduler.memory.num_available, scheduler.memory.block_size) == (5, 4)


def test_a_line_of_the_age_of_another_request_counts_for_itself() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, age=0))
    scheduler.add(make_sequence(2, age=0, priority=BACKGROUND))
    while scheduler.num_running < 2:
        plan = planned(scheduler)
        scheduler.commit(answer(plan, *[7] * sum(row.is_sampled for row in plan.rows)))
    assert scheduler.forget_all().num_replayed == 2
