"""How long what runs has stood still, on numbers that a reader checks on paper."""

from penstock.router.engine.progress import Progress
from penstock.router.scheduling.plan import InitialState, Plan, Row, Sampling

INITIAL_STATE = InitialState(Sampling(), prompt_length=40)


def test_the_longest_time_without_progress_counts() -> None:
    progress = Progress()
    chunk = Plan(0, (Row(slot=0, start=0, token_ids=(1, 2), initial_state=INITIAL_STATE),))
    progress.planned(chunk, 10.0)
    assert progress.stalled_seconds([0], 15.0) == 5.0
    progress.committed(chunk, 17.0)
    other = Plan(1, (Row(slot=1, start=0, token_ids=(1,), initial_state=INITIAL_STATE),))
    progress.planned(other, 20.0)
    progress.committed(other, 21.0)
    assert [progress.stalled_seconds(slots, 25.0) for slots in ([], [0], [1], [0, 1])] == [0.0, 8.0, 4.0, 8.0]


def test_being_planned_is_no_progress_but_beginning_is() -> None:
    progress = Progress()
    progress.planned(Plan(0, (Row(slot=0, start=0, token_ids=(1,), initial_state=INITIAL_STATE),)), 10.0)
    progress.planned(Plan(1, (Row(slot=0, start=1, from_last_sample=True),)), 20.0)
    assert progress.stalled_seconds([0], 30.0) == 20.0
    progress.planned(Plan(2, (Row(slot=0, start=0, token_ids=(1,), initial_state=INITIAL_STATE),)), 25.0)
    assert progress.stalled_seconds([0], 30.0) == 5.0
