"""How many groups a load asks for, and when that is followed."""

import pytest

from penstock.cluster.config import Scaling
from penstock.cluster.scaling import Load, Wish, load_of, recent, settled, wished

SCALING = Scaling(min_groups=1, max_groups=4, target_waiting=4, target_running=8, upscale_delay=10, downscale_delay=60)


@pytest.mark.parametrize(("waiting", "running", "groups"), [
    (0, 0, 1), (4, 0, 1), (5, 0, 2), (8, 0, 2), (9, 0, 3), (1000, 0, 4), (0, 8, 1), (0, 9, 2), (5, 17, 3),
])
def test_a_load_asks_for_groups(waiting, running, groups):
    assert wished(Load(waiting, running), SCALING) == groups


def follow(wishes: list[int], num_groups: int = 1, step: float = 1.0) -> list[int]:
    """How many groups there are after each of wishes a step apart."""
    known: list[Wish] = []
    numbers = []
    for index, wish in enumerate(wishes):
        known = [*recent(known, index * step, SCALING), Wish(index * step, wish)]
        num_groups = settled(known, num_groups, index * step, SCALING)
        numbers.append(num_groups)
    return numbers


def test_more_groups_come_after_the_upscale_delay():
    assert follow([3] * 12) == [1] * 10 + [3] * 2


def test_of_several_wishes_the_smallest_rise_is_followed():
    assert follow([2] * 5 + [4] * 7)[-2:] == [2, 2]


def test_a_peak_shorter_than_the_delay_changes_nothing():
    assert follow(([4] * 9 + [1]) * 3) == [1] * 30


def test_fewer_groups_remain_after_the_downscale_delay():
    assert follow([1] * 62, num_groups=4) == [4] * 60 + [1] * 2


def test_one_busy_moment_keeps_groups_for_another_delay():
    numbers = follow([1] * 50 + [4] + [1] * 62, num_groups=4)
    assert numbers[:111] == [4] * 111
    assert numbers[111] == 1


def test_of_several_wishes_the_smallest_fall_is_followed():
    assert follow([1] * 30 + [3] + [1] * 40, num_groups=4)[-1] == 3


def test_groups_stay_while_nothing_is_known():
    assert settled([], 3, 100.0, SCALING) == 3


@pytest.mark.parametrize(("num_groups", "bounded"), [(0, 1), (9, 4)])
def test_bounds_hold_at_once(num_groups, bounded):
    assert settled([], num_groups, 0.0, SCALING) == bounded


def test_wishes_from_before_the_longest_delay_are_forgotten_but_one():
    wishes = [Wish(float(time), 1) for time in range(100)]
    kept = recent(wishes, 100.0, SCALING)
    assert [wish.time for wish in kept] == [float(time) for time in range(39, 100)]


def test_without_delays_every_wish_is_followed():
    scaling = SCALING.model_copy(update={"upscale_delay": 0, "downscale_delay": 0})
    assert settled([Wish(5.0, 3)], 1, 5.0, scaling) == 3
    assert settled([Wish(5.0, 3)], 4, 5.0, scaling) == 3


def test_a_routers_own_metrics_tell():
    assert load_of("# HELP tgi_queue_size x\ntgi_queue_size 3.0\ntgi_batch_current_size 5.0\n") == Load(3, 5)


def test_metrics_that_do_not_tell():
    assert load_of("tgi_queue_size 3.0\ntgi_queue_size_other 4.0\n") is None
