"""Which group a request goes to."""

import random

import pytest

from penstock.router.groups.moving import WINDOW, choose


def test_the_only_group_is_chosen() -> None:
    assert choose([7.0], 3, lambda place: 1 / 0) == (0, "only")


def test_the_least_load_is_chosen_where_nobody_has_the_prefix() -> None:
    assert choose([5.0, 2.0, 9.0], 1, lambda place: 0) == (1, "load")
    assert choose([5.0, 2.0, 9.0], 100, lambda place: 2) == (1, "prefix"), "all have it alike"


def test_the_longest_hit_is_chosen_within_the_window() -> None:
    assert choose([0.0, 3.0, 2.0], 4, [0, 3, 2].__getitem__) == (1, "prefix")
    assert choose([0.0, 3.0, 2.0], 4, [0, 3, 3].__getitem__) == (2, "prefix"), "of equals, the one with less to do"


def test_the_window_keeps_load_from_piling_up() -> None:
    assert choose([0.0, 9.0], 4, [0, 4].__getitem__) == (0, "load"), "it has far more to do than the other"
    assert choose([100.0, 200.0], 4, [0, 4].__getitem__) == (1, "prefix"), "a third above the mean is no matter"
    assert choose([100.0, 240.0], 4, [0, 4].__getitem__) == (0, "load")


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_prefixes_are_no_group_gets_far_ahead(seed: int) -> None:
    """All requests have one prefix, which a single group has: it gets no more than the window allows."""
    drawn = random.Random(seed)
    loads = [0.0] * drawn.randint(2, 8)
    favourite = drawn.randrange(len(loads))
    for _ in range(2000):
        size = drawn.randint(1, 30)
        place, _ = choose(loads, size, lambda place: 30 * (place == favourite))
        loads[place] += size
        for other, load in enumerate(loads):
            loads[other] = max(0.0, load - drawn.random() * 4)
        assert max(loads) <= (1 + WINDOW) * sum(loads) / len(loads) + 2 * 30
