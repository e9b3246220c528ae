"""The figures of vectors and their table."""

import json

import numpy as np
import pytest

from penstock.bench.embed.runs import Run, from_json, nearness, percentiles, ratio, table, to_json

RUNS = {"ours": Run(32, [20.0, 30.0, 40.0], [3.0, 4.0], [0.999, 0.9999]), "encode": Run(16, [10.0, 10.0, 40.0])}


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    assert ratio(RUNS, "ours", "encode") == 2.0


def test_a_row_has_what_is_known_of_a_contender() -> None:
    head, *rows = table(RUNS, "encode")
    assert rows == [["ours", "30.0", "2.00", "32", "3.00", "4.00", "0.9990000", "0.9999000"],
                    ["encode", "10.0", "1.00", "16", "–", "–", "–", "–"]]
    assert {len(row) for row in rows} == {len(head)}
    assert next(iter(list(table({"ours": RUNS["ours"]}, "encode"))[1:]))[2] == "–"


def test_runs_are_read_as_they_were_written() -> None:
    assert from_json(json.loads(json.dumps(to_json(RUNS)))) == RUNS


def test_nearness_is_of_directions() -> None:
    theirs = np.array([[1, 0], [0, 2], [1, 1]], np.float32)
    assert nearness(3 * theirs, theirs) == pytest.approx([1, 1])
    assert nearness(theirs[:, ::-1].copy(), theirs) == pytest.approx([0, 1 / 3])


def test_percentiles_are_in_milliseconds() -> None:
    half, most = percentiles([0.001] * 99 + [0.002])
    assert (half, 1 < most <= 2.1) == (1.0, True)
