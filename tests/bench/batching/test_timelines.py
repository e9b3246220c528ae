"""The timelines that lectures on batching draw, made by the scheduler that serves."""

from itertools import pairwise

import pytest

from penstock.bench.batching.timelines import REQUESTS, Timeline, timelines

EXPECTED = {
    "continuous": """\
continuous: 8 steps, 17 of 24 places taken, 71 %
    T1  T2  T3  T4  T5  T6  T7  T8
S1  R1  R1  R1  R1  R5  R5  .   .
S2  R2  R2  R3  R3  R3  R3  R3  R3
S3  .   .   R4  R4  R4  .   .   .""",
    "static": """\
static: 11 steps, 17 of 33 places taken, 52 %
    T1  T2  T3  T4  T5  T6  T7  T8  T9  T10 T11
S1  .   .   R1  R1  R1  R1  .   .   R5  R5  .
S2  .   .   R2  R2  .   .   .   .   .   .   .
S3  .   .   R3  R3  R3  R3  R3  R3  R4  R4  R4""",
    "dynamic": """\
dynamic: 11 steps, 17 of 33 places taken, 52 %
    T1  T2  T3  T4  T5  T6  T7  T8  T9  T10 T11
S1  .   R1  R1  R1  R1  R3  R3  R3  R3  R3  R3
S2  .   R2  R2  .   .   R4  R4  R4  .   .   .
S3  .   .   .   .   .   R5  R5  .   .   .   ."""}


@pytest.mark.parametrize("timeline", timelines(), ids=lambda timeline: timeline.policy)
def test_a_policy_has_its_timeline(timeline: Timeline) -> None:
    print(timeline.text)
    assert timeline.text == EXPECTED[timeline.policy]


@pytest.mark.parametrize("timeline", timelines(), ids=lambda timeline: timeline.policy)
def test_every_request_has_a_step_for_each_token_without_a_gap(timeline: Timeline) -> None:
    for number, request in enumerate(REQUESTS, 1):
        steps = [at for at, step in enumerate(timeline.steps) if number in step.values()]
        assert steps == [*range(steps[0], steps[0] + request.answer)]
        assert steps[0] >= request.at


@pytest.mark.parametrize("timeline", timelines(), ids=lambda timeline: timeline.policy)
def test_only_continuous_batching_lets_requests_join_others(timeline: Timeline) -> None:
    joined = [{*step.values()} - {*before.values()} for before, step in pairwise(timeline.steps)
              if {*step.values()} & {*before.values()}]
    assert [each for each in joined if each] == ([{3, 4}, {5}] if timeline.policy == "continuous" else [])
