"""Histories of a whole router under faults: every answer is the right one, and planted faults are found."""

import subprocess
import sys
from collections import Counter

import pytest

from tests.paths import ROOT
from tests.router.groups.simulation.faulty import FAULTS
from tests.router.groups.simulation.world import World, simulate

QUICK, CHUNK, SLOW, ALL = 100, 500, 2000, 10_000
"""How many histories the quick tests choose from, a slow one runs, all slow ones run, and those with `--every-case`."""
ENOUGH = {"tokens": 30, "losses": 1.2, "moved": 0.6, "cut off": 0.3, "poison deaths": 0.4, "KilledGroup": 0.08,
          "GenerationError": 0.15, "Unhealthy": 0.03, "stuck": 0.01, "twice": 0.3}
"""What happens in a history at least, on average."""
MOST_SEEDS = 400
"""A planted fault is found in one of so many histories."""


def run(seeds: range) -> None:
    counts: Counter[str] = Counter()
    for seed in seeds:
        counts.update(simulate(seed).judge.counts)
    for what, least in ENOUGH.items():
        assert counts[what] >= least * len(seeds) * 0.6, f"too little happened: {counts}"


def test_answers_are_right_whatever_happens() -> None:
    run(range(0, QUICK, 2))  # among which is one that gets stuck


@pytest.mark.slow
@pytest.mark.parametrize("first", [
    pytest.param(first, marks=[pytest.mark.every_case] if first >= QUICK + SLOW else [])
    for first in range(QUICK, QUICK + ALL, CHUNK)])
def test_answers_are_right_in_thousands_of_histories(first: int) -> None:
    run(range(first, first + CHUNK))


def stories(seeds: range) -> list[list[tuple[float, str]]]:
    return [simulate(seed).story for seed in seeds]


def test_a_seed_tells_the_same_story_again() -> None:
    assert stories(range(3)) == stories(range(3))


@pytest.mark.slow
def test_a_seed_tells_the_same_story_in_any_process() -> None:
    """Texts have other hashes there, and sets other orders."""
    told = [subprocess.run([sys.executable, "-m", "tests.router.groups.simulation", *map(str, range(30))], cwd=ROOT,
                           env={"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed}, capture_output=True, text=True,
                           check=True).stdout for seed in ("1", "2")]
    assert told[0] == told[1]


def check_found(world_class: type[World], most_seeds: int) -> None:
    for seed in range(most_seeds):
        try:
            simulate(seed, world_class)
        except AssertionError:
            return
    pytest.fail("nothing is wrong")


RARE = ("a moved request is suspected of nothing any more", "the blocks of a moved request are never free",
        "a moved request goes on behind tokens that its client has not", "nobody is rescued when a group opens",
        "a replaced model goes on with answers", "a router that goes on draws another seed")
"""Those that are met in one history of dozens."""


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault not in RARE])
def test_finds_that(fault: str) -> None:
    check_found(FAULTS[fault], 100)


@pytest.mark.slow
@pytest.mark.parametrize("fault", RARE)
def test_finds_in_the_end_that(fault: str) -> None:
    check_found(FAULTS[fault], MOST_SEEDS)
