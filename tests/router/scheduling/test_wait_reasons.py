"""Why sequences wait."""

import pytest

from penstock.router.scheduling.admission import MAX_PASSED
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.scheduler import Scheduler
from penstock.router.scheduling.wait_reasons import WaitReason, settled
from tests.router.scheduling import test_adapters
from tests.router.scheduling.small_schedulers import answer, make_scheduler, make_sequence, planned, step


def waits(scheduler: Scheduler) -> dict[WaitReason, int]:
    found = scheduler.occupancy.waits
    assert sum(found.values()) == scheduler.num_waiting
    return {reason: number for reason, number in found.items() if number}


def test_for_a_slot() -> None:
    scheduler = make_scheduler(max_slots=2)
    for id in range(5):
        scheduler.add(make_sequence(id))
    assert waits(scheduler) == {WaitReason.NEW: 5}
    plan = planned(scheduler)
    assert waits(scheduler) == {WaitReason.SLOTS: 3}
    scheduler.add(make_sequence(5))
    assert waits(scheduler) == {WaitReason.SLOTS: 3, WaitReason.NEW: 1}
    scheduler.commit(answer(plan, 11, 12))
    step(scheduler, 11, 12)
    assert waits(scheduler) == {WaitReason.SLOTS: 4}


def test_for_the_budget() -> None:
    scheduler = make_scheduler(max_step_tokens=8)
    for id in range(4):
        scheduler.add(make_sequence(id, 5))
    planned(scheduler)
    assert waits(scheduler) == {WaitReason.BUDGET: 2}


def test_for_memory() -> None:
    scheduler = make_scheduler(num_blocks=4)
    scheduler.add(make_sequence(1, 8))
    scheduler.add(make_sequence(2, 12))
    planned(scheduler)
    assert waits(scheduler) == {WaitReason.MEMORY: 1}


def test_for_memory_behind_one_that_waits_for_too_long() -> None:
    scheduler = make_scheduler(num_blocks=6)
    scheduler.add(make_sequence(1, 8))
    planned(scheduler)
    scheduler.add(long := make_sequence(2, 15))
    scheduler.add(make_sequence(3, 4))
    long.num_passed = MAX_PASSED
    planned(scheduler)
    assert waits(scheduler) == {WaitReason.MEMORY: 2}


def test_for_a_prefix() -> None:
    scheduler = make_scheduler()
    for id in (1, 2):
        scheduler.add(make_sequence(id, tokens=range(100, 113)))
    planned(scheduler)
    assert waits(scheduler) == {WaitReason.PREFIX: 1}


def test_for_an_adapter() -> None:
    scheduler = test_adapters.make(4, 2)
    for id in range(3):
        test_adapters.add(scheduler, id, adapter=id % 2)
    planned(scheduler)
    assert waits(scheduler) == {WaitReason.ADAPTER: 1}


def test_for_a_suspect() -> None:
    scheduler = make_scheduler()
    for id in range(2):
        scheduler.add(make_sequence(id))
    for _ in range(2):
        planned(scheduler)
        scheduler.forget_all()
    planned(scheduler)
    assert scheduler.num_running == 1
    assert waits(scheduler) == {WaitReason.SUSPECT: 1}


def test_for_a_group_that_is_away() -> None:
    scheduler = make_scheduler()
    for id in range(3):
        scheduler.add(make_sequence(id))
    away = scheduler.occupancy.while_away()
    assert (away.waits, away.free_blocks) == ({WaitReason.GROUP: 3}, 0)


def test_those_that_leave_do_not_count() -> None:
    scheduler = make_scheduler(max_slots=1)
    for id in range(4):
        scheduler.add(make_sequence(id))
    planned(scheduler)
    for id in (1, 2, 3):
        scheduler.finish(id, FinishReason.CANCELLED)
        assert waits(scheduler) == ({WaitReason.SLOTS: 3 - id} if id < 3 else {})


@pytest.mark.parametrize(("found", "number", "expected"), [
    ({}, 0, {}), ({}, 2, {WaitReason.NEW: 2}),
    ({WaitReason.MEMORY: 1, WaitReason.SLOTS: 2}, 2, {WaitReason.MEMORY: 1, WaitReason.SLOTS: 1}),
    ({WaitReason.MEMORY: 1, WaitReason.SLOTS: 2}, 4, {WaitReason.MEMORY: 1, WaitReason.SLOTS: 2, WaitReason.NEW: 1})])
def test_as_many_reasons_as_wait(found: dict[WaitReason, int], number: int, expected: dict[WaitReason, int]) -> None:
    assert settled(found, number) == expected
