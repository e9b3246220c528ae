"""Fewer points of a grid: a set of its cases in which every two values of two parameters still meet."""

from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations, product

import pytest


def cover(cases: Sequence[Mapping[str, Hashable]]) -> list[int]:
    """Returns the indices, in order, of cases that have among them every pair of values that any case has.

    Greedy: each time the case with the most pairs that are still missing, the first of equals. Cases of one parameter
    are all needed.
    """
    if any(len(case) < 2 for case in cases):
        return list(range(len(cases)))
    pairs = [set(combinations(sorted(case.items(), key=lambda item: item[0]), 2)) for case in cases]
    missing, chosen = set().union(*pairs), []
    while missing:
        best = max(range(len(cases)), key=lambda index: len(pairs[index] & missing))
        missing -= pairs[best]
        chosen.append(best)
    return sorted(chosen)


def pairwise(**values: Sequence[Hashable]) -> pytest.MarkDecorator:
    """Parametrizes a test with few points of the grid of these values: every two values meet in one of them."""
    grid = [dict(zip(values, point, strict=True)) for point in product(*values.values())]
    return pytest.mark.parametrize(tuple(values), [tuple(grid[index].values()) for index in cover(grid)])
