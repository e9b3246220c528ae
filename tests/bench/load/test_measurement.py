"""Figures that follow from hand-made measurements."""

import math

import numpy as np
import pytest

from penstock.bench.load.measurement import (
    Failure,
    Measurement,
    Run,
    counted_by,
    group_failures,
    percentile,
    statistics,
)
from penstock.bench.load.report import as_json, table

QUICK = Measurement(10.0, 10.35, (10.1, 10.12, 10.14, 10.3), num_tokens=4, prompt_tokens=5)
"""First token after 100 ms; gaps of 20, 20 and 160 ms."""
SLOW_START = Measurement(10.0, 11.0, (10.9, 10.92), num_tokens=4)
ONE_TOKEN = Measurement(12.0, 12.2, (12.15,), num_tokens=1)
WHOLE = Measurement(12.0, 12.5, (), num_tokens=9)
REFUSED = Measurement(13.0, 13.01, failure=Failure("status 429", "Model is overloaded"))


def make_run(*measurements: Measurement, duration: float = 2.0) -> Run:
    return Run("concurrency", 4, list(measurements), duration)


def test_times_of_one_answer():
    assert QUICK.first == pytest.approx(0.1)
    assert QUICK.gaps == pytest.approx([0.02, 0.02, 0.16])
    assert QUICK.per_token == pytest.approx(0.2 / 3)
    assert QUICK.duration == pytest.approx(0.35)


def test_several_tokens_in_one_event_are_one_gap_and_shorten_the_time_per_token():
    assert SLOW_START.gaps == pytest.approx([0.02])
    assert SLOW_START.per_token == pytest.approx(0.02 / 3)


def test_what_an_answer_does_not_have():
    assert (ONE_TOKEN.gaps, ONE_TOKEN.per_token) == ([], None)
    assert (WHOLE.first, WHOLE.gaps, WHOLE.per_token) == (None, [], None)
    assert WHOLE.duration == pytest.approx(0.5)


@pytest.mark.parametrize("values", [[3.0], [1.0, 2.0], [5.0, 1.0, 9.0, 7.0], list(range(101))])
@pytest.mark.parametrize("percent", [0, 50, 75, 90, 99, 100])
def test_percentiles_are_those_of_numpy(values, percent):
    assert percentile(values, percent) == pytest.approx(np.percentile(values, percent))


def test_nothing_has_no_percentile():
    assert math.isnan(percentile([], 50))
    assert statistics([]) is None


def test_statistics_have_the_mean_and_ascend():
    found = statistics([4.0, 1.0, 2.0, 5.0])
    assert found is not None
    assert found.pop("mean") == 3.0
    assert list(found) == ["p50", "p75", "p90", "p99"]
    assert list(found.values()) == sorted(found.values())


@pytest.mark.parametrize(("limits", "good"), [
    ({"ttft": 200}, [QUICK, ONE_TOKEN]),
    ({"ttft": 99.9}, []),
    ({"ttft": 1000}, [QUICK, SLOW_START, ONE_TOKEN]),
    ({"itl": 50}, [SLOW_START, ONE_TOKEN]),          # the longest gap of the first is 160 ms
    ({"itl": 160.1}, [QUICK, SLOW_START, ONE_TOKEN]),
    ({"tpot": 50}, [SLOW_START, ONE_TOKEN]),
    ({"tpot": 67}, [QUICK, SLOW_START, ONE_TOKEN]),
    ({"e2e": 350.1}, [QUICK, ONE_TOKEN]),
    ({"ttft": 200, "itl": 50}, [ONE_TOKEN]),
    ({}, [QUICK, SLOW_START, ONE_TOKEN]),
])
def test_goodput_counts_the_answers_that_meet_all_limits(limits, good):
    everything = [QUICK, SLOW_START, ONE_TOKEN, REFUSED]
    assert [one for one in everything if one.meets(limits)] == good
    assert make_run(*everything).goodput(limits) == len(good) / 2.0


def test_rates_count_whole_answers_alone():
    run = make_run(QUICK, SLOW_START, REFUSED)
    assert (run.num_tokens, run.tokens_per_second, run.requests_per_second) == (8, 4.0, 1.0)
    assert run.prompt_lengths == {5}
    assert run.values("e2e") == pytest.approx([350, 1000])
    assert run.failures == [REFUSED.failure]


def test_failures_are_grouped_the_most_frequent_first():
    failures = [Failure("timeout", "a"), Failure("status 429", "b"), Failure("status 429", "c")]
    assert list(group_failures(failures).items()) == [("status 429", ["b", "c"]), ("timeout", ["a"])]


def test_who_counted_the_tokens_is_what_most_answers_say():
    chunks = Measurement(0, 1, (0.5,), 1, counted_by="chunks")
    assert counted_by([QUICK, chunks, chunks]) == "chunks"
    assert counted_by([]) == "nothing"


def test_json_says_what_was_not_seen_and_what_failed():
    found = as_json(make_run(WHOLE, REFUSED), {})
    assert [found[name] for name in ("ttft_ms", "itl_ms", "tpot_ms", "goodput")] == [None] * 4
    assert found["e2e_ms"]["p50"] == pytest.approx(500)
    assert found["failures"] == [{"kind": "status 429", "count": 1, "example": "Model is overloaded"}]
    assert (found["requests"], found["answered"], found["failed"]) == (2, 1, 1)


def test_a_table_of_failures_alone_has_no_times():
    lines = list(table(make_run(REFUSED), {"ttft": 200}))
    assert lines == [
        "concurrency 4: 0 of 1 requests answered in 2.0 s",
        "  goodput: 0.00 requests/s (0% of all) within ttft ≤ 200 ms",
        "  failed, 1 of them: status 429: Model is overloaded"]
