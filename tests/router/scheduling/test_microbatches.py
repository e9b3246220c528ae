"""Sequences that decode in turns, so that the steps in flight wait for nothing that one of them samples."""

from collections import deque

import pytest

from penstock.contract.plan import Plan
from penstock.router.scheduling.scheduler import Scheduler
from tests.router.scheduling.simulation import Simulation
from tests.router.scheduling.small_schedulers import answer, make_sequence, planned, spans


def make_scheduler(num_microbatches: int, max_slots: int = 8) -> Scheduler:
    return Scheduler(block_size=4, num_blocks=200, max_slots=max_slots, max_step_tokens=64,
                     num_microbatches=num_microbatches)


def commit(scheduler: Scheduler, plan: Plan) -> None:
    scheduler.commit(answer(plan, *[7] * sum(row.is_sampled for row in plan.rows)))


def slots(plan: Plan) -> list[int]:
    return [row.slot for row in plan.rows]


@pytest.mark.parametrize(("num_microbatches", "number"), [(2, 4), (2, 5), (3, 7), (4, 8), (4, 3)])
def test_each_decodes_once_in_so_many_steps(num_microbatches: int, number: int) -> None:
    scheduler = make_scheduler(num_microbatches)
    for index in range(number):
        scheduler.add(make_sequence(index + 1, max_new=60))
    commit(scheduler, planned(scheduler))  # all prompts
    turns = min(num_microbatches, number)
    in_flight = deque(planned(scheduler) for _ in range(turns))
    for _ in range(12):
        assert sorted(slot for plan in in_flight for slot in slots(plan)) == list(range(number))
        commit(scheduler, in_flight.popleft())
        in_flight.append(planned(scheduler))
    lengths = {len(slots(plan)) for plan in in_flight}
    assert max(lengths) <= -(-number // num_microbatches)


def test_one_sequence_is_planned_ahead_as_ever() -> None:
    scheduler = make_scheduler(2)
    scheduler.add(make_sequence(1))
    assert [spans(planned(scheduler)) for _ in range(3)] == [[(0, 0, 4)], [(0, 4, 1)], [(0, 5, 1)]]


def test_a_prompt_does_not_wait_for_what_is_sampled() -> None:
    """Its second chunk comes without the decode row that the first step in flight has."""
    scheduler = make_scheduler(2)
    scheduler.add(make_sequence(1))
    commit(scheduler, planned(scheduler))
    scheduler.add(make_sequence(2, 150))
    first, second = planned(scheduler), planned(scheduler)
    assert [spans(first), spans(second)] == [[(0, 4, 1), (1, 0, 63)], [(1, 63, 64)]]
    commit(scheduler, first)
    assert spans(planned(scheduler)) == [(0, 5, 1), (1, 127, 23)]


@pytest.mark.parametrize(("num_microbatches", "depth"), [(2, 2), pytest.param(3, 3, marks=pytest.mark.slow), (2, 4)])
def test_turns_keep_the_invariants(num_microbatches: int, depth: int) -> None:
    simulation = Simulation(2, depth, num_microbatches=num_microbatches)
    simulation.run(500)
    for what, least in {"steps": 250, "ended": 25, "preempted": 1, "hits": 5, "losses": 1}.items():
        assert simulation.counts[what] >= least, f"too little happened: {simulation.counts}"


def test_guesses_in_turns_change_no_answer() -> None:
    simulation = Simulation(6, 2, guesses=5, num_microbatches=2)
    simulation.run(750)
    for what, least in {"steps": 350, "ended": 30, "hits": 10, "losses": 1, "drafts": 150, "accepted": 100}.items():
        assert simulation.counts[what] >= least, f"too little happened: {simulation.counts}"
