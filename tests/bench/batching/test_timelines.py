"""The timelines that lectures on batching draw, made by the scheduler that serves."""

from itertools import pairwise

import pytest

from penstock.bench.batching.timelines import COMING, WAITING, Example, Timeline, timelines

WHOLE_BATCHES = """\
: 12 steps, 31 of 48 places taken, 65 %
    T1  T2  T3  T4  T5  T6  T7  T8  T9  T10 T11 T12
1   S1  S1  S1  S1  S1  .   .   .   .   .   .   .
2   S2  S2  S2  S2  S2  S2  S2  S2  S5  S5  S5  S5
3   S3  S3  S3  S3  .   .   .   .   .   .   .   .
4   S4  S4  S4  S4  S4  S4  S4  .   S6  S6  S6  ."""
"""Who waits for a whole batch gets the slots that have been empty the shortest."""
EXPECTED = {
    COMING: ["""\
continuous: 8 steps, 17 of 24 places taken, 71 %
    T1  T2  T3  T4  T5  T6  T7  T8
1   R1  R1  R1  R1  R5  R5  .   .
2   R2  R2  R3  R3  R3  R3  R3  R3
3   .   .   R4  R4  R4  .   .   .""", """\
static: 11 steps, 17 of 33 places taken, 52 %
    T1  T2  T3  T4  T5  T6  T7  T8  T9  T10 T11
1   .   .   R1  R1  R1  R1  .   .   R5  R5  .
2   .   .   R2  R2  .   .   .   .   .   .   .
3   .   .   R3  R3  R3  R3  R3  R3  R4  R4  R4""", """\
dynamic: 11 steps, 17 of 33 places taken, 52 %
    T1  T2  T3  T4  T5  T6  T7  T8  T9  T10 T11
1   .   R1  R1  R1  R1  R3  R3  R3  R3  R3  R3
2   .   R2  R2  .   .   R4  R4  R4  .   .   .
3   .   .   .   .   .   R5  R5  .   .   .   ."""],
    WAITING: ["""\
continuous: 8 steps, 31 of 32 places taken, 97 %
    T1  T2  T3  T4  T5  T6  T7  T8
1   S1  S1  S1  S1  S1  S6  S6  S6
2   S2  S2  S2  S2  S2  S2  S2  S2
3   S3  S3  S3  S3  S5  S5  S5  S5
4   S4  S4  S4  S4  S4  S4  S4  .""", "static" + WHOLE_BATCHES, "dynamic" + WHOLE_BATCHES]}
LINES = [line for example in EXPECTED for line in timelines(example)]
of_each_line = pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line.policy}, {line.example.letter}")


@pytest.mark.parametrize("example", EXPECTED, ids=lambda example: example.letter)
def test_a_policy_has_its_timeline(example: Example) -> None:
    found = [line.text for line in timelines(example)]
    print("\n\n".join([example.title, *found]))
    assert found == EXPECTED[example]


@of_each_line
def test_every_request_has_a_step_for_each_token_without_a_gap(line: Timeline) -> None:
    for number, (at, answer) in enumerate(line.example.answers, 1):
        steps = [place for place, step in enumerate(line.steps) if number in step.values()]
        assert steps == [*range(steps[0], steps[0] + answer)]
        assert steps[0] >= at


@of_each_line
def test_only_continuous_batching_lets_requests_join_others(line: Timeline) -> None:
    joined = [{*step.values()} - {*before.values()} for before, step in pairwise(line.steps)
              if {*step.values()} & {*before.values()}]
    own = {COMING: [{3, 4}, {5}], WAITING: [{5}, {6}]}[line.example]
    assert [each for each in joined if each] == (own if line.policy == "continuous" else [])
