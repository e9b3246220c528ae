"""The scheduler on numbers that a reader checks on paper. Blocks hold 4 tokens throughout."""

import pytest

from penstock.contract.admission import Admission
from penstock.contract.initial_state import InitialState
from penstock.contract.output import Output
from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.contract.row_result import RowResult
from penstock.contract.sampling import Sampling
from penstock.contract.step_result import StepResult
from penstock.router.scheduling.confirmed import Sampled
from penstock.router.scheduling.finish_reason import FinishReason
from tests.router.scheduling.small_schedulers import GREEDY, answer, make_scheduler, make_sequence, planned, spans, step


def test_a_prompt_then_its_decode_rows() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, 5, max_new=2))
    plan, sampled = step(scheduler, 7)
    assert plan == Plan(0, (Row(slot=0, start=0, token_ids=(100, 101, 102, 103, 104), new_blocks=(0, 1),
                                initial_state=InitialState(GREEDY, prompt_length=5)),), admitted=(Admission(1),))
    assert sampled == [Sampled(1, 7, -1.0)]
    plan, sampled = step(scheduler, 8)
    assert plan == Plan(1, (Row(slot=0, start=5, from_last_sample=True, is_decode=True),))
    assert sampled == [Sampled(1, 8, -1.0, FinishReason.LENGTH)]
    assert scheduler.plan() is None
    assert scheduler.memory.num_held == 0


def test_a_block_comes_when_the_last_one_is_full() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, 3))
    new_blocks = [step(scheduler, 7)[0].rows[0].new_blocks for _ in range(4)]
    assert new_blocks == [(0,), (), (1,), ()]


def test_a_long_prompt_is_cut_to_the_budget() -> None:
    scheduler = make_scheduler(max_step_tokens=16)
    scheduler.add(make_sequence(1, 37))
    rows = [step(scheduler, *tokens)[0].rows[0] for tokens in [(), (), (7,)]]
    assert [(row.start, row.num_inputs, row.output, row.new_blocks) for row in rows] == [
        (0, 16, Output.NONE, (0, 1, 2, 3)),
        (16, 16, Output.NONE, (4, 5, 6, 7)),
        (32, 5, Output.SAMPLE, (8, 9)),
    ]
    assert [row.initial_state is None for row in rows] == [False, True, True]


def test_decode_rows_come_first_and_a_prefill_takes_the_rest() -> None:
    scheduler = make_scheduler(max_step_tokens=16)
    scheduler.add(make_sequence(1, 4))
    scheduler.add(make_sequence(2, 4))
    step(scheduler, 7, 7)
    scheduler.add(make_sequence(3, 40))
    plan, _ = step(scheduler, 8, 8)
    assert spans(plan) == [(0, 4, 1), (1, 4, 1), (2, 0, 14)]


def test_one_prefill_takes_half_the_budget_while_others_wait() -> None:
    scheduler = make_scheduler(max_step_tokens=16)
    scheduler.add(make_sequence(1, 40))
    scheduler.add(make_sequence(2, 3))
    scheduler.add(make_sequence(3, 4))
    plan, _ = step(scheduler, 7, 7)
    assert [(row.slot, row.start, row.num_inputs, row.output) for row in plan.rows] == [
        (0, 0, 8, Output.NONE), (1, 0, 3, Output.SAMPLE), (2, 0, 4, Output.SAMPLE)]


def test_one_prefill_takes_the_whole_budget_while_others_find_no_slot() -> None:
    scheduler = make_scheduler(max_slots=1)
    scheduler.add(make_sequence(1, 40))
    scheduler.add(make_sequence(2, 3))
    assert spans(step(scheduler)[0]) == [(0, 0, 16)]


def test_the_end_token_ends() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, 4))
    _, sampled = step(scheduler, 99)
    assert sampled == [Sampled(1, 99, -1.0, FinishReason.EOS_TOKEN)]
    assert (scheduler.plan(), scheduler.memory.num_held) == (None, 0)


def test_the_end_token_does_not_end_what_ignores_it() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, 4, max_new=2, ignore_eos=True))
    assert step(scheduler, 99)[1] == [Sampled(1, 99, -1.0)]
    assert step(scheduler, 99)[1] == [Sampled(1, 99, -1.0, FinishReason.LENGTH)]


def test_length_comes_before_the_end_token() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, 4, max_new=1))
    assert step(scheduler, 99)[1] == [Sampled(1, 99, -1.0, FinishReason.LENGTH)]


def test_a_slot_is_cleared_before_it_is_given_again() -> None:
    scheduler = make_scheduler(max_slots=1)
    scheduler.add(make_sequence(1, 4, max_new=1))
    scheduler.add(make_sequence(2, 4, max_new=1))
    assert step(scheduler, 7)[0].cleared_slots == ()
    plan, _ = step(scheduler, 7)
    assert (plan.cleared_slots, plan.rows[0].slot, plan.admitted) == ((0,), 0, (Admission(2),))


def test_history_goes_to_the_shard_when_the_sampling_reads_it() -> None:
    scheduler = make_scheduler()
    sampling = Sampling(repetition_penalty=1.5)
    scheduler.add(make_sequence(1, 3, sampling=sampling))
    assert step(scheduler, 7)[0].rows[0].initial_state == InitialState(sampling, 3, (100, 101, 102))


def test_a_waiting_sequence_leaves_a_block_for_each_that_runs() -> None:
    scheduler = make_scheduler(num_blocks=3)
    scheduler.add(make_sequence(1, 4, max_new=4))
    step(scheduler, 7)
    scheduler.add(make_sequence(2, 8, max_new=4))
    assert step(scheduler, 8)[0].admitted == ()


def test_the_youngest_is_preempted_and_comes_back_with_its_output() -> None:
    scheduler = make_scheduler(num_blocks=5)
    scheduler.add(make_sequence(1, 6, max_new=10))
    scheduler.add(make_sequence(2, 6, max_new=10))
    step(scheduler, 11, 21)
    for token in (12, 13):
        step(scheduler, token, token + 10)
    plan, _ = step(scheduler, 14)
    assert [(row.slot, row.start, row.new_blocks) for row in plan.rows] == [(0, 8, (4,))]
    assert plan.preempted == (2,)
    assert (scheduler.num_running, scheduler.num_waiting) == (1, 1)
    scheduler.finish(1, FinishReason.CANCELLED)
    plan, _ = step(scheduler, 24)
    row = plan.rows[0]
    assert plan.admitted == (Admission(2, hit_tokens=8),), "its full blocks were not needed by others"
    assert (row.start, row.token_ids, row.new_blocks) == (8, (23,), (2, 3, 4))
    assert row.initial_state == InitialState(GREEDY, prompt_length=6)


def test_a_preempted_sequence_keeps_its_place_in_the_line() -> None:
    scheduler = make_scheduler(num_blocks=5, max_slots=2)
    for id in (1, 2, 3):
        scheduler.add(make_sequence(id, 6, max_new=10))
    for tokens in [(11, 21), (12, 22), (13, 23), (14,)]:
        step(scheduler, *tokens)
    scheduler.finish(1, FinishReason.CANCELLED)
    plan, _ = step(scheduler, 24)
    assert plan.admitted == (Admission(2, hit_tokens=8),)


def test_finish_keeps_blocks_while_a_step_in_flight_names_the_sequence() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, 4))
    plan = planned(scheduler)
    scheduler.finish(1, FinishReason.CANCELLED)
    assert scheduler.memory.num_held == 1
    assert scheduler.commit(answer(plan, 7)) == []
    assert scheduler.memory.num_held == 0


def test_two_steps_in_flight() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, 4, max_new=8))
    first, second = planned(scheduler), planned(scheduler)
    assert second.rows == (Row(slot=0, start=4, from_last_sample=True, new_blocks=(1,), is_decode=True),)
    assert scheduler.commit(answer(first, 99)) == [Sampled(1, 99, -1.0, FinishReason.EOS_TOKEN)]
    assert scheduler.plan() is None
    assert scheduler.memory.num_held == 2, "the late row still writes to them"
    assert scheduler.commit(answer(second, 5)) == []
    assert scheduler.memory.num_held == 0


def test_no_row_beyond_the_length_with_steps_in_flight() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, 4, max_new=2))
    assert scheduler.plan() is not None
    assert scheduler.plan() is not None
    assert scheduler.plan() is None


def test_a_victim_in_flight_is_drained_first() -> None:
    scheduler = make_scheduler(num_blocks=5)
    scheduler.add(make_sequence(1, 6, max_new=10))
    scheduler.add(make_sequence(2, 6, max_new=10))
    step(scheduler, 11, 21)
    plans = [planned(scheduler) for _ in range(3)]
    assert [spans(plan) for plan in plans] == [[(0, 6, 1), (1, 6, 1)], [(0, 7, 1), (1, 7, 1)], [(0, 8, 1)]]
    assert [plan.preempted for plan in plans] == [(), (), (2,)]
    for plan, tokens in zip(plans, [(12, 22), (13, 23), (14,)], strict=True):
        assert scheduler.num_waiting == (plan is plans[2])
        assert [sampled.token_id for sampled in scheduler.commit(answer(plan, *tokens))] == [*tokens]
    assert (scheduler.memory.num_held, scheduler.num_running) == (3, 1)


def test_a_preemption_is_told_with_the_next_plan() -> None:
    """Sequence 1 needs a block while a step in flight names both: its own row waits until those of 2 are back."""
    scheduler = make_scheduler(num_blocks=4)
    scheduler.add(make_sequence(1, 7))
    scheduler.add(make_sequence(2, 4))
    step(scheduler, 11, 21)
    plan = planned(scheduler)
    assert spans(plan) == [(0, 7, 1), (1, 4, 1)]
    assert scheduler.plan() is None
    scheduler.commit(answer(plan, 12, 22))
    plan = planned(scheduler)
    assert (spans(plan), plan.preempted, plan.cleared_slots) == ([(0, 8, 1)], (2,), (1,))


def test_finishing_what_has_ended_changes_nothing() -> None:
    scheduler = make_scheduler()
    scheduler.finish(5, FinishReason.CANCELLED)
    assert scheduler.plan() is None


def test_results_must_come_in_order() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, 4))
    scheduler.plan()
    with pytest.raises(AssertionError, match="result of step 3, expected 0"):
        scheduler.commit(StepResult(3, ()))


def test_a_result_needs_a_step_in_flight() -> None:
    with pytest.raises(AssertionError, match="result of step 0, but none is in flight"):
        make_scheduler().commit(StepResult(0, ()))


@pytest.mark.parametrize(("length", "chunk", "tokens", "third"), [
    (4, 4, (7, 8), [(0, 4, 1), (1, 5, 1)]),
    (40, 8, (8,), [(1, 5, 1), (0, 8, 15)]),
])
def test_a_confirmed_only_sequence_waits_for_its_results(
    length: int, chunk: int, tokens: tuple[int, ...], third: list[tuple[int, int, int]],
) -> None:
    """Not even the next chunk of its prompt is planned while a step in flight names it."""
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, length, confirmed_only=True))
    scheduler.add(make_sequence(2, 4))
    first = planned(scheduler)
    assert spans(first) == [(0, 0, chunk), (1, 0, 4)]
    assert spans(planned(scheduler)) == [(1, 4, 1)]
    scheduler.commit(answer(first, *tokens))
    assert spans(planned(scheduler)) == third


def test_a_stop_token_ends_what_ignores_the_end_token_too() -> None:
    scheduler = make_scheduler()
    sequence = make_sequence(1, 4, ignore_eos=True)
    sequence.stop_token_ids = frozenset({50, 51})
    scheduler.add(sequence)
    assert step(scheduler, 99)[1] == [Sampled(1, 99, -1.0)]
    assert step(scheduler, 51)[1] == [Sampled(1, 51, -1.0, FinishReason.EOS_TOKEN)]


def test_the_likeliest_tokens_come_with_the_token() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, 4))
    planned(scheduler)
    top = ((7, -1.0), (8, -2.0))
    confirmed = scheduler.commit(StepResult(0, (RowResult(0, (7,), (-1.0,), (top,)),)))
    assert confirmed == [Sampled(1, 7, -1.0, top_logprobs=top)]


def test_rows_that_sample_by_a_grammar_wait_for_a_mask() -> None:
    """Sequence 1 has a grammar; the first chunk of its prompt samples nothing."""
    scheduler = make_scheduler(max_step_tokens=16)
    sequence = make_sequence(1, 18)
    sequence.has_grammar = True
    scheduler.add(sequence)
    scheduler.add(make_sequence(2, 4))
    plans = [step(scheduler, *tokens)[0] for tokens in [(22,), (11, 23), (12, 24)]]
    assert [plan.masked for plan in plans] == [(), ((0, 1, ()),), ((0, 1, ()),)]
    assert [[row.late_mask for row in plan.rows] for plan in plans] == [[False] * 2, [False, True], [True, False]]
