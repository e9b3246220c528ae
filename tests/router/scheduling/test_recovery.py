"""A lost group: everything is computed again, and what may have killed it is computed alone."""

import pytest

from penstock.router.scheduling.plan import Admission, FinishReason, InitialState, Plan, Sampling
from penstock.router.scheduling.scheduler import Forgotten, Scheduler
from tests.router.scheduling.small_schedulers import (
    answer,
    make_scheduler,
    make_sequence,
    num_cached,
    planned,
    spans,
    step,
)


def lose_a_step(scheduler: Scheduler) -> tuple[Plan, Forgotten]:
    """The group dies in the next step."""
    return planned(scheduler), scheduler.forget_all()


def sequence_ids(plan: Plan) -> list[int]:
    """Whose rows these are, by the hundreds of the prompts' tokens; only for first rows."""
    return [row.token_ids[0] // 100 for row in plan.rows]


def test_everything_waits_again_with_its_output_as_input() -> None:
    scheduler = make_scheduler()
    sampling = Sampling(share_penalty=0.5)
    scheduler.add(make_sequence(1, 4, sampling=sampling))
    scheduler.add(make_sequence(2, 4))
    step(scheduler, 11, 21)
    step(scheduler, 12, 22)
    scheduler.add(make_sequence(3, 2))
    assert scheduler.forget_all() == Forgotten(num_replayed=2, given_up=())
    assert (scheduler.num_running, scheduler.num_waiting) == (0, 3)
    assert (num_cached(scheduler), scheduler.memory.pool.num_free) == (0, scheduler.memory.pool.num_blocks)
    plan, _ = step(scheduler, 13, 23, 31)
    assert (plan.step_id, plan.cleared_slots) == (0, ())
    assert plan.admitted == (Admission(1), Admission(2), Admission(3))
    assert [row.token_ids for row in plan.rows] == [
        (100, 101, 102, 103, 11, 12), (200, 201, 202, 203, 21, 22), (300, 301)]
    assert plan.rows[0].initial_state == InitialState(sampling, 4, (100, 101, 102, 103, 11, 12))


def test_what_follows_a_loss_is_always_the_same() -> None:
    scheduler = make_scheduler(max_slots=8)
    for id in range(1, 9):
        scheduler.add(make_sequence(id, 2))
    step(scheduler, *range(11, 19))
    scheduler.forget_all()
    assert [row.slot for row in planned(scheduler).rows] == [7, 6, 5, 4, 3, 2]


def test_results_of_a_lost_step_are_refused() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1))
    plan, _ = lose_a_step(scheduler)
    with pytest.raises(AssertionError, match="result of step 0, but none is in flight"):
        scheduler.commit(answer(plan, 11))


def test_a_loss_gives_back_what_finished_sequences_held() -> None:
    scheduler = make_scheduler(max_slots=2)
    for id in (1, 2):
        scheduler.add(make_sequence(id))
    planned(scheduler)
    scheduler.finish(1, FinishReason.CANCELLED)
    scheduler.finish(2, FinishReason.CANCELLED)
    assert scheduler.forget_all() == Forgotten(0, ())
    assert scheduler.memory.pool.num_free == scheduler.memory.pool.num_blocks
    for id in (3, 4):
        scheduler.add(make_sequence(id))
    assert sorted(row.slot for row in planned(scheduler).rows) == [0, 1]


def test_rows_in_flight_are_replayed_alone_until_they_are_answered() -> None:
    """Sequence 3 came after the step that died, so it waits until 1 and 2 are cleared, and needs no replay alone."""
    scheduler = make_scheduler()
    for id in (1, 2):
        scheduler.add(make_sequence(id))
    plan = planned(scheduler)
    scheduler.add(make_sequence(3))
    assert scheduler.forget_all() == Forgotten(2, ())
    for id in (1, 2):
        plan = planned(scheduler)
        assert (plan.step_id, sequence_ids(plan), spans(plan)[0][1:]) == (id - 1, [id], (0, 4))
        assert scheduler.plan() is None, "nothing else is in flight with a suspect"
        scheduler.commit(answer(plan, 7))
    assert [span[1:] for span in spans(planned(scheduler))] == [(4, 1), (4, 1), (0, 4)]


def test_who_is_named_by_no_step_in_flight_is_no_suspect() -> None:
    """The result of 1 is back, and nothing more is planned; 2 dies with its next token."""
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, confirmed_only=True))
    scheduler.add(make_sequence(2))
    first = planned(scheduler)
    second = planned(scheduler)
    assert spans(second) == [(1, 4, 1)]
    scheduler.commit(answer(first, 11, 21))
    assert scheduler.forget_all() == Forgotten(2, ())
    assert sequence_ids(step(scheduler, 22)[0]) == [2]
    assert [row.start for row in planned(scheduler).rows] == [5, 0]


def test_several_steps_in_flight_make_one_suspicion() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1))
    for _ in range(5):
        planned(scheduler)
    assert [scheduler.forget_all().given_up] + [lose_a_step(scheduler)[1].given_up for _ in range(2)] == [(), (), ()]


def test_a_preempted_sequence_that_a_step_in_flight_names_is_a_suspect() -> None:
    scheduler = make_scheduler(num_blocks=4)
    scheduler.add(make_sequence(1, 7))
    scheduler.add(make_sequence(2, 4))
    step(scheduler, 11, 21)
    planned(scheduler)
    assert scheduler.plan() is None
    assert scheduler.forget_all() == Forgotten(2, ())
    assert [sequence_ids(step(scheduler, 7)[0]) for _ in range(2)] == [[1], [2]]


def test_the_prompt_of_a_suspect_is_computed_alone_chunk_by_chunk() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, 40))
    lose_a_step(scheduler)
    scheduler.add(make_sequence(2))
    plans = [step(scheduler, *tokens)[0] for tokens in [(), (), (11,)]]
    assert [spans(plan) for plan in plans] == [[(0, 0, 16)], [(0, 16, 16)], [(0, 32, 8)]]
    assert spans(planned(scheduler)) == [(0, 40, 1), (1, 0, 4)]


def test_a_suspect_that_dies_alone_three_times_is_given_up() -> None:
    scheduler = make_scheduler()
    for id in (1, 2):
        scheduler.add(make_sequence(id))
    assert lose_a_step(scheduler)[1] == Forgotten(2, ())
    deaths = [lose_a_step(scheduler) for _ in range(3)]
    assert [sequence_ids(plan) for plan, _ in deaths] == [[1], [1], [1]]
    assert [forgotten for _, forgotten in deaths] == [Forgotten(1, ()), Forgotten(1, ()), Forgotten(0, (1,))]
    assert (scheduler.num_waiting, scheduler.num_running) == (1, 0)
    assert sequence_ids(step(scheduler, 21)[0]) == [2]
    for token in range(22, 29):
        step(scheduler, token)
    assert scheduler.plan() is None


def test_an_answer_clears_a_suspect() -> None:
    """Twice dead alone, answered, twice dead again: it takes three in a row."""
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1))
    for token in (11, 12):
        lose_a_step(scheduler)
        assert [lose_a_step(scheduler)[1].given_up for _ in range(2)] == [(), ()]
        step(scheduler, token)
    lose_a_step(scheduler)
    assert [lose_a_step(scheduler)[1].given_up for _ in range(3)] == [(), (), (1,)]


def test_a_death_while_nothing_runs_accuses_nobody() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1))
    lose_a_step(scheduler)
    for _ in range(5):
        assert scheduler.forget_all() == Forgotten(0, ())
    assert sequence_ids(planned(scheduler)) == [1]


def test_who_was_answered_is_no_suspect_in_the_next_death() -> None:
    """Sequence 1 was replayed well; the group dies again with 2, which alone is replayed alone."""
    scheduler = make_scheduler()
    for id in (1, 2):
        scheduler.add(make_sequence(id))
    lose_a_step(scheduler)
    step(scheduler, 11)
    plan, forgotten = lose_a_step(scheduler)
    assert (sequence_ids(plan), forgotten) == ([2], Forgotten(2, ()))
    assert sequence_ids(step(scheduler, 21)[0]) == [2]
    assert [row.start for row in planned(scheduler).rows] == [4, 0]


def test_a_suspect_may_leave() -> None:
    scheduler = make_scheduler()
    for id in (1, 2, 3):
        scheduler.add(make_sequence(id))
    lose_a_step(scheduler)
    scheduler.finish(1, FinishReason.CANCELLED)
    plan = planned(scheduler)
    assert sequence_ids(plan) == [2]
    scheduler.finish(2, FinishReason.CANCELLED)
    assert scheduler.plan() is None, "the step of a suspect that left is still in flight"
    scheduler.commit(answer(plan, 21))
    assert sequence_ids(planned(scheduler)) == [3]


def test_a_suspect_takes_the_blocks_that_it_needs_from_older_ones() -> None:
    """The group comes back with 3 blocks: too few for the two of each sequence."""
    scheduler = make_scheduler(num_blocks=6)
    for id in (1, 2):
        scheduler.add(make_sequence(id, 6, max_new=4))
    lose_a_step(scheduler)
    scheduler.resize(3)
    step(scheduler, 11)
    plan, _ = step(scheduler, 21)
    assert (plan.preempted, sequence_ids(plan)) == ((1,), [2])
    assert scheduler.num_waiting == 1


def test_memory_is_resized_only_while_nobody_holds_any() -> None:
    scheduler = make_scheduler(num_blocks=6)
    scheduler.add(make_sequence(1))
    step(scheduler, 11)
    with pytest.raises(AssertionError):
        scheduler.resize(5)
    scheduler.forget_all()
    scheduler.resize(5)
    assert (scheduler.memory.num_available, scheduler.memory.block_size) == (5, 4)
