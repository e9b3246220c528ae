"""Logprobs of a prompt's tokens: asked for chunk by chunk, whatever is cached. Blocks hold 4 tokens throughout."""

import pytest

from penstock.router.scheduling.plan import (
    Admission,
    FinishReason,
    Output,
    Plan,
    RowResult,
    Sampled,
    Scored,
    StepResult,
)
from penstock.router.scheduling.scheduler import Scheduler
from penstock.router.scheduling.sequence import Sequence
from tests.router.scheduling.small_schedulers import make_scheduler, make_sequence, planned, spans, step


def make_scored(id: int, length: int, max_new: int = 8) -> Sequence:
    sequence = make_sequence(id, length, max_new)
    sequence.wants_scores = True
    return sequence


def scored_answer(plan: Plan) -> StepResult:
    """A score is the token's id, negated; every sampled token is 7."""
    return StepResult(plan.step_id, tuple(
        RowResult(row.slot, *(((7,), (-1.0,)) if row.output is Output.SAMPLE else ((), ())),
                  scores=tuple(-float(token_id) for token_id in row.score_ids))
        for row in plan.rows if row.is_answered))


def scored_step(scheduler: Scheduler) -> tuple[Plan, list[Sampled | Scored]]:
    plan = planned(scheduler)
    return plan, scheduler.commit(scored_answer(plan))


@pytest.mark.parametrize("max_step_tokens", [5, 6, 9, 16, 40])
def test_scores_come_whole_however_the_prompt_is_cut(max_step_tokens: int) -> None:
    scheduler = make_scheduler(max_step_tokens=max_step_tokens)
    scheduler.add(make_scored(1, 18))
    confirmed: list[Sampled | Scored] = []
    while not any(isinstance(item, Sampled) for item in confirmed):
        plan, more = scored_step(scheduler)
        assert len(plan.rows[0].score_ids) == plan.rows[0].count - (plan.rows[0].output is Output.SAMPLE)
        confirmed += more
    scores = {scored.start + index: logprob for scored in confirmed if isinstance(scored, Scored)
              for index, logprob in enumerate(scored.logprobs)}
    assert scores == {position: -100.0 - position for position in range(1, 18)}
    assert scored_step(scheduler)[0].rows[0].score_ids == ()


def test_a_prompt_of_one_token_has_none() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_scored(1, 1))
    assert scored_step(scheduler)[1] == [Sampled(1, 7, -1.0)]


def test_nothing_cached_is_taken_but_its_own_blocks_are_shared() -> None:
    """Of three equal prompts the second is scored, so it is computed anew; the third begins behind the first."""
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, 9, max_new=1))
    step(scheduler, 7)
    sequence = make_sequence(2, tokens=range(100, 109), max_new=1)
    sequence.wants_scores = True
    scheduler.add(sequence)
    scheduler.add(make_sequence(3, tokens=range(100, 109), max_new=1))
    plan, _ = scored_step(scheduler)
    assert plan.admitted == (Admission(2), Admission(3, hit_tokens=8))
    assert [row.score_ids for row in plan.rows] == [tuple(range(101, 109)), ()]
    scheduler = make_scheduler()
    scheduler.add(make_scored(1, 9, max_new=1))
    scored_step(scheduler)
    scheduler.add(make_sequence(2, tokens=range(100, 109)))
    assert planned(scheduler).admitted == (Admission(2, hit_tokens=8),)


def test_of_equal_prompts_that_arrive_together_the_scored_one_waits_for_nobody() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, 9))
    sequence = make_sequence(2, tokens=range(100, 109))
    sequence.wants_scores = True
    scheduler.add(sequence)
    assert [admission.sequence_id for admission in planned(scheduler).admitted] == [1, 2]


def test_after_a_loss_only_what_is_missing_is_asked_for_again() -> None:
    """A prompt of 40 tokens in chunks of 16: one chunk is back and one is lost; each chunk is asked for as a whole."""
    scheduler = make_scheduler()
    scheduler.add(make_scored(1, 40))
    scored_step(scheduler)
    planned(scheduler)
    scheduler.forget_all()
    plans = [scored_step(scheduler)[0] for _ in range(4)]
    assert [spans(plan)[0] for plan in plans] == [(0, 0, 16), (0, 16, 16), (0, 32, 8), (0, 40, 1)]
    assert [plan.rows[0].score_ids for plan in plans] == [
        (), tuple(range(117, 133)), tuple(range(133, 140)), ()]


def test_once_scored_it_may_begin_behind_cached_blocks() -> None:
    """It is preempted with all its scores back."""
    scheduler = make_scheduler(num_blocks=5)
    scheduler.add(make_sequence(1, 6, max_new=10))
    scheduler.add(make_scored(2, 6, max_new=10))
    for _ in range(4):
        scored_step(scheduler)
    assert scheduler.num_waiting == 1
    scheduler.finish(1, FinishReason.CANCELLED)
    plan, _ = scored_step(scheduler)
    assert (plan.admitted, plan.rows[0].score_ids) == ((Admission(2, hit_tokens=8),), ())


def test_scores_that_are_too_few_are_a_fault() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_scored(1, 4))
    plan = planned(scheduler)
    with pytest.raises(AssertionError, match="2 scores for 3 tokens"):
        scheduler.commit(StepResult(plan.step_id, (RowResult(0, (7,), (-1.0,), scores=(-1.0, -1.0)),)))
