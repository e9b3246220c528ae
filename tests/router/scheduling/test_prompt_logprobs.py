"""Logprobs of a prompt's tokens: asked for chunk by chunk, whatever is cached. Blocks hold 4 tokens throughout."""

import pytest

from penstock.contract.admission import Admission
from penstock.contract.output import Output
from penstock.contract.plan import Plan
from penstock.contract.row_result import RowResult
from penstock.contract.step_result import StepResult
from penstock.router.scheduling.confirmed import PromptLogprobsPart, Sampled
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.scheduler import Scheduler
from penstock.router.scheduling.sequence import Sequence
from tests.router.scheduling.small_schedulers import make_scheduler, make_sequence, planned, spans, step


def make_sequence_with_logprobs(id: int, length: int, max_new: int = 8) -> Sequence:
    sequence = make_sequence(id, length, max_new)
    sequence.wants_prompt_logprobs = True
    return sequence


def answered(plan: Plan) -> StepResult:
    """A logprob is the token's id, negated; every sampled token is 7."""
    return StepResult(plan.step_id, tuple(
        RowResult(row.slot, *(((7,), (-1.0,)) if row.output is Output.SAMPLE else ((), ())),
                  prompt_logprobs=tuple(-float(token_id) for token_id in row.prompt_logprob_ids))
        for row in plan.rows if row.is_answered))


def run_step(scheduler: Scheduler) -> tuple[Plan, list[Sampled | PromptLogprobsPart]]:
    plan = planned(scheduler)
    return plan, scheduler.commit(answered(plan))


@pytest.mark.parametrize("max_step_tokens", [5, 6, 9, 16, 40])
def test_logprobs_come_whole_however_the_prompt_is_cut(max_step_tokens: int) -> None:
    scheduler = make_scheduler(max_step_tokens=max_step_tokens)
    scheduler.add(make_sequence_with_logprobs(1, 18))
    confirmed: list[Sampled | PromptLogprobsPart] = []
    while not any(isinstance(item, Sampled) for item in confirmed):
        plan, more = run_step(scheduler)
        assert len(plan.rows[0].prompt_logprob_ids) == plan.rows[0].num_inputs - (plan.rows[0].output is Output.SAMPLE)
        confirmed += more
    logprobs = {part.start + index: logprob for part in confirmed if isinstance(part, PromptLogprobsPart)
                for index, logprob in enumerate(part.logprobs)}
    assert logprobs == {position: -100.0 - position for position in range(1, 18)}
    assert run_step(scheduler)[0].rows[0].prompt_logprob_ids == ()


def test_a_prompt_of_one_token_has_none() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence_with_logprobs(1, 1))
    assert run_step(scheduler)[1] == [Sampled(1, 7, -1.0)]


def test_nothing_cached_is_taken_but_its_own_blocks_are_shared() -> None:
    """The second of three equal prompts wants its logprobs and is computed anew; the third begins behind the first."""
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, 9, max_new=1))
    step(scheduler, 7)
    sequence = make_sequence(2, tokens=range(100, 109), max_new=1)
    sequence.wants_prompt_logprobs = True
    scheduler.add(sequence)
    scheduler.add(make_sequence(3, tokens=range(100, 109), max_new=1))
    plan, _ = run_step(scheduler)
    assert plan.admitted == (Admission(2), Admission(3, hit_tokens=8))
    assert [row.prompt_logprob_ids for row in plan.rows] == [tuple(range(101, 109)), ()]
    scheduler = make_scheduler()
    scheduler.add(make_sequence_with_logprobs(1, 9, max_new=1))
    run_step(scheduler)
    scheduler.add(make_sequence(2, tokens=range(100, 109)))
    assert planned(scheduler).admitted == (Admission(2, hit_tokens=8),)


def test_of_equal_prompts_that_arrive_together_the_one_that_wants_logprobs_waits_for_nobody() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, 9))
    sequence = make_sequence(2, tokens=range(100, 109))
    sequence.wants_prompt_logprobs = True
    scheduler.add(sequence)
    assert [admission.sequence_id for admission in planned(scheduler).admitted] == [1, 2]


def test_after_a_loss_only_what_is_missing_is_asked_for_again() -> None:
    """A prompt of 40 tokens in chunks of 16: one chunk is back and one is lost; each chunk is asked for as a whole."""
    scheduler = make_scheduler()
    scheduler.add(make_sequence_with_logprobs(1, 40))
    run_step(scheduler)
    planned(scheduler)
    scheduler.forget_all()
    plans = [run_step(scheduler)[0] for _ in range(4)]
    assert [spans(plan)[0] for plan in plans] == [(0, 0, 16), (0, 16, 16), (0, 32, 8), (0, 40, 1)]
    assert [plan.rows[0].prompt_logprob_ids for plan in plans] == [
        (), tuple(range(117, 133)), tuple(range(133, 140)), ()]


def test_with_all_logprobs_it_may_begin_behind_cached_blocks() -> None:
    """It is preempted with all its logprobs back."""
    scheduler = make_scheduler(num_blocks=5)
    scheduler.add(make_sequence(1, 6, max_new=10))
    scheduler.add(make_sequence_with_logprobs(2, 6, max_new=10))
    for _ in range(4):
        run_step(scheduler)
    assert scheduler.num_waiting == 1
    scheduler.finish(1, FinishReason.CANCELLED)
    plan, _ = run_step(scheduler)
    assert (plan.admitted, plan.rows[0].prompt_logprob_ids) == ((Admission(2, hit_tokens=8),), ())


def test_logprobs_that_are_too_few_are_a_fault() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence_with_logprobs(1, 4))
    plan = planned(scheduler)
    with pytest.raises(AssertionError, match="2 prompt logprobs for 3 tokens"):
        scheduler.commit(StepResult(plan.step_id, (RowResult(0, (7,), (-1.0,), prompt_logprobs=(-1.0, -1.0)),)))
