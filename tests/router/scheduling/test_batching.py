"""Static and dynamic batching, which the scheduler's own policy is measured against: whole batches, one after the
other."""

import pytest

from penstock.router.scheduling.batching import Dynamic, Static
from penstock.router.scheduling.scheduler import Scheduler
from tests.router.scheduling.batching_simulation import BatchingSimulation
from tests.router.scheduling.small_schedulers import make_sequence, planned, step


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def make(batching: Static | Dynamic, num_blocks: int = 100, max_step_tokens: int = 16) -> Scheduler:
    return Scheduler(block_size=4, num_blocks=num_blocks, max_slots=2, max_step_tokens=max_step_tokens,
                     batching=batching)


@pytest.mark.parametrize("depth", [pytest.param(1, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("kind", [Static, Dynamic])
def test_traffic_in_whole_batches_keeps_the_invariants(kind: type[Static] | type[Dynamic], depth: int) -> None:
    simulation = BatchingSimulation(1, depth, kind)
    simulation.run(500)
    for what, least in {"steps": 250, "ended": 15, "batches": 5, "losses": 1}.items():
        assert simulation.counts[what] >= least, f"too little happened: {simulation.counts}"


def test_a_static_batch_begins_when_it_is_full_or_no_more_will_come() -> None:
    static = Static(2)
    scheduler = make(static)
    scheduler.add(make_sequence(1, max_new=1))
    assert scheduler.plan() is None
    scheduler.add(make_sequence(2, max_new=2))
    scheduler.add(make_sequence(3, max_new=1))
    assert len(step(scheduler, 7, 7)[0].rows) == 2
    assert scheduler.num_waiting == 1
    assert len(step(scheduler, 7)[0].rows) == 1, "one has ended, and nobody takes its place"
    assert scheduler.plan() is None
    static.close()
    assert len(planned(scheduler).rows) == 1


def test_a_dynamic_batch_begins_full_or_after_a_delay() -> None:
    clock = Clock()
    scheduler = make(Dynamic(2, 5.0, clock))
    scheduler.add(make_sequence(1, max_new=1))
    assert scheduler.plan() is None
    clock.now = 4.9
    assert scheduler.plan() is None
    clock.now = 5.0
    step(scheduler, 7)
    scheduler.add(make_sequence(2, max_new=1))
    assert scheduler.plan() is None, "the delay begins anew when the batch has ended"
    scheduler.add(make_sequence(3, max_new=1))
    assert len(step(scheduler, 7, 7)[0].rows) == 2, "who is full does not wait"


def test_a_batch_whose_prompts_take_several_steps_is_not_joined_by_others() -> None:
    scheduler = make(Dynamic(2, 0.0, Clock()), max_step_tokens=8)
    scheduler.add(make_sequence(1, length=12, max_new=1))
    assert len(step(scheduler)[0].rows) == 1
    scheduler.add(make_sequence(2, max_new=1))
    assert len(step(scheduler, 7)[0].rows) == 1
    assert len(step(scheduler, 7)[0].rows) == 1


def test_who_finds_no_memory_waits_for_the_next_batch() -> None:
    scheduler = make(Static(2), num_blocks=5, max_step_tokens=32)
    for id in (1, 2):
        scheduler.add(make_sequence(id, length=12, max_new=2))
    assert len(step(scheduler, 7)[0].rows) == 1
    assert scheduler.num_waiting == 1
    step(scheduler, 7)
    assert scheduler.plan() is None
