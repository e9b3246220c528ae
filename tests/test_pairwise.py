"""The helper that thins grids keeps every pair of values."""

from itertools import combinations, product

from tests.pairwise import cover

GRID = [dict(zip("abcd", values, strict=True)) for values in product(range(4), "xyz", (True, False), range(3))]


def pairs(cases: list[dict[str, object]]) -> set[object]:
    return {pair for case in cases for pair in combinations(case.items(), 2)}


def test_every_pair_is_in_few_cases() -> None:
    chosen = cover(GRID)
    assert pairs([GRID[index] for index in chosen]) == pairs(GRID)
    assert len(chosen) <= 20 < len(GRID) == 72
    assert chosen == sorted(chosen) == cover(GRID)


def test_pairs_that_no_case_has_are_not_wanted() -> None:
    some = [case for case in GRID if case["a"] != case["d"]]
    chosen = cover(some)
    assert pairs([some[index] for index in chosen]) == pairs(some)


def test_two_parameters_keep_their_product_and_one_keeps_all_of_it() -> None:
    assert len(cover([{"a": a, "b": b} for a, b in product(range(3), range(5))])) == 15
    assert cover([{"a": a} for a in range(4)]) == [0, 1, 2, 3]
    assert cover([]) == []
