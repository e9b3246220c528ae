"""Who comes first of those that wait, and who is preempted first."""

import pytest

from penstock.router.scheduling.priorities import BACKGROUND, MAX_PRIORITY, MIN_PRIORITY, REQUESTS_PER_LEVEL, place_of
from penstock.router.scheduling.scheduler import Scheduler
from tests.router.scheduling.small_schedulers import make_scheduler, make_sequence, step


def waiting(scheduler: Scheduler) -> list[int]:
    return [sequence.id for sequence in scheduler._waiting]


def test_of_those_that_wait_the_lowest_priority_comes_first_and_then_the_oldest() -> None:
    scheduler = make_scheduler()
    for id, priority in enumerate([0, 1, BACKGROUND, -1, 0, BACKGROUND, -1, 1]):
        scheduler.add(make_sequence(id, priority=priority))
    assert waiting(scheduler) == [3, 6, 0, 4, 1, 7, 2, 5]


@pytest.mark.parametrize("distance", [1, 2, 5])
def test_fewer_younger_ones_pass_one_than_the_bound_says(distance: int) -> None:
    """One runs at a time; younger ones of a lower priority keep coming, and one waits."""
    scheduler = make_scheduler(max_slots=1)
    scheduler.add(make_sequence(0, max_new=1, priority=distance))
    num_passed = 0
    for id in range(1, 1000):
        scheduler.add(make_sequence(id, max_new=1))
        if step(scheduler, 7)[0].admitted[0].sequence_id == 0:
            break
        num_passed += 1
    assert num_passed == REQUESTS_PER_LEVEL * distance - 1


def test_nobody_of_the_background_is_before_anybody_else() -> None:
    assert place_of(0, BACKGROUND) > place_of(2**40, MAX_PRIORITY)
    assert place_of(0, BACKGROUND) < place_of(1, BACKGROUND)
    assert place_of(10**6, MIN_PRIORITY) < place_of(10**6 + 1, MIN_PRIORITY)


def test_the_highest_priority_is_preempted_first_and_waits_in_its_old_place() -> None:
    """Two of 4 tokens each come to the end of their first block, and there are three."""
    scheduler = make_scheduler(num_blocks=3, max_slots=2)
    for id, priority in [(1, 2), (2, 0), (3, 1)]:
        scheduler.add(make_sequence(id, length=3, priority=priority))
    assert [each.sequence_id for each in step(scheduler, 20, 30)[0].admitted] == [2, 3]
    step(scheduler, 21, 31)
    plan, _ = step(scheduler, 22)
    assert plan.preempted == (3,)
    assert waiting(scheduler) == [3, 1]


def test_age_decides_and_not_the_id_where_another_group_ran_it_before() -> None:
    scheduler = make_scheduler()
    for id, age, priority in [(0, 50, 0), (1, 3, 2), (2, 40, 0), (3, 36, 0)]:
        scheduler.add(make_sequence(id, age=age, priority=priority))
    assert waiting(scheduler) == [1, 3, 2, 0]
    released = scheduler.release(1)
    assert released.age == 3
