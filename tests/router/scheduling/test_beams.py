"""Beams in the scheduler: whatever happens to them, the answers are those of a search that nothing disturbs."""

import random

import pytest

from penstock.contract.plan import Plan
from penstock.contract.row_result import RowResult
from penstock.contract.sampling import Sampling
from penstock.contract.step_result import StepResult
from penstock.router.scheduling import admission
from penstock.router.scheduling import scheduler as scheduler_module
from penstock.router.scheduling.beam_search import BeamSettings
from penstock.router.scheduling.confirmed import Candidates
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.priorities import BACKGROUND
from penstock.router.scheduling.residency import Residency
from penstock.router.scheduling.scheduler import Scheduler
from penstock.router.scheduling.sequence import Status
from penstock.router.scheduling.wait_reasons import WaitReason
from tests.router.scheduling import faulty_schedulers
from tests.router.scheduling.beam_simulation import BeamSimulation, MixedBeamSimulation
from tests.router.scheduling.shard_mirror import EOS, ShardMirror
from tests.router.scheduling.small_schedulers import make_scheduler, make_sequence, planned


def check_traffic(simulation: BeamSimulation, num_rounds: int) -> None:
    simulation.run(num_rounds)
    for what, least in {"steps": 900, "ended": 50, "preempted": 5, "hits": 20, "losses": 1, "searches": 15,
                        "answers": 15, "undecided": 20, "beams forked": 10, "beams waiting": 10}.items():
        assert simulation.counts[what] * 1000 >= least * num_rounds, f"too little happened: {simulation.counts}"


@pytest.mark.parametrize(("seed", "depth"), [(1, 2), (3, 1), (4, 3)])
def test_traffic_with_beams_keeps_the_invariants(seed: int, depth: int) -> None:
    check_traffic(BeamSimulation(seed, depth), 400)


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("seed", [10, *(pytest.param(seed, marks=pytest.mark.every_case) for seed in (11, 12))])
def test_a_day_of_traffic_with_beams_keeps_the_invariants(seed: int, depth: int) -> None:
    check_traffic(BeamSimulation(seed, depth), 5000)


@pytest.mark.parametrize("options", [
    {"guesses": 5}, {"budget_varies": True}, {"carries_states": True}, {"num_microbatches": 3}], ids=str)
def test_beams_get_along_with(options: dict[str, int]) -> None:
    simulation = BeamSimulation(6, 3, **options)
    simulation.run(400)
    assert simulation.counts["answers"] > 5, f"too little happened: {simulation.counts}"


@pytest.mark.parametrize(("seed", "depth"), [(5, 1), (7, 3)])
def test_beams_get_along_with_priorities_and_the_background(seed: int, depth: int) -> None:
    simulation = MixedBeamSimulation(seed, depth)
    simulation.run(500)
    for what in "answers", "background rows", "undecided", "passed":
        assert simulation.counts[what] > 5, f"too little happened: {simulation.counts}"


def test_beams_get_along_with_requests_that_may_be_passed_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in admission, scheduler_module:
        monkeypatch.setattr(module, "MAX_PASSED", 3)
    simulation = BeamSimulation(5, 2)
    simulation.run(700)
    assert simulation.counts["answers"] > 5, f"too little happened: {simulation.counts}"


@pytest.mark.parametrize(("faulty", "message"), [
    (faulty_schedulers.ForkWithoutCopy, "reads block .+ at"),
    (faulty_schedulers.StallsWithBeams, "wait for ever"),
    pytest.param(faulty_schedulers.SuspectsForEver, "wait for ever|brings other tokens", marks=pytest.mark.slow),
], ids=lambda value: value.__name__ if isinstance(value, type) else "")
def test_catches(faulty: type[Scheduler], message: str) -> None:
    simulation = BeamSimulation(3, 2, faulty)
    with pytest.raises(AssertionError, match=message):
        simulation.run(3000)


def most_blocks(num_beams: int, prompt_length: int, max_new_tokens: int) -> int:
    """How many blocks of 16 tokens a search holds at most."""
    simulation, draw = BeamSimulation(1, 2), random.Random(1)
    simulation.block_size, simulation.budget, simulation.shard = 16, 64, ShardMirror(16, 300)
    simulation.scheduler = Scheduler(
        block_size=16, num_blocks=300, max_slots=8, max_step_tokens=64, eos_token_ids={EOS},
        adapters=simulation.adapters.residency)
    simulation.ask(BeamSettings(num_beams, 1, early_stopping="never"), draw.choices(range(2, 25), k=prompt_length),
                   prompt_length + max_new_tokens)
    most = 0
    while simulation.live:
        simulation.advance()
        most = max(most, simulation.scheduler.memory.num_held)
    assert simulation.scheduler.memory.num_held == 0
    return most


def test_beams_share_their_blocks() -> None:
    one, four = most_blocks(1, 512, 64), most_blocks(4, 512, 64)
    assert one == 36
    assert four <= 1.4 * one, f"{four} blocks of four beams"


def with_candidates(plan: Plan) -> StepResult:
    """The same candidate behind each row."""
    return StepResult(plan.step_id, tuple(RowResult(row.slot, (7,), (-0.1,), (((7, -0.1),),)) for row in plan.rows))


def test_a_beam_gets_no_row_until_a_candidate_is_chosen() -> None:
    scheduler = make_scheduler()
    beam = make_sequence(0, 5, sampling=Sampling(top_n=4), is_beam=True)
    scheduler.add(beam)
    plan = planned(scheduler)
    assert scheduler.plan() is None, "it is planned while a step is in flight"
    [found] = scheduler.commit(StepResult(plan.step_id, (
        RowResult(plan.rows[0].slot, (7,), (-0.1,), (((7, -0.1), (8, -0.2)),)),)))
    assert found == Candidates(0, -0.1, ((7, -0.1), (8, -0.2)))
    assert scheduler.plan() is None
    assert beam.tokens == [0, 1, 2, 3, 4]
    scheduler.extend(0, 8)
    [row] = planned(scheduler).rows
    assert (row.start, row.token_ids, row.from_last_sample) == (5, (8,), False), "the shards know another token"


def test_undecided_beams_give_way_to_those_that_are_not_younger() -> None:
    scheduler = make_scheduler(max_slots=2)
    for id, age in (0, 5), (1, 5), (2, 5), (3, 9):
        scheduler.add(make_sequence(id, 5, sampling=Sampling(top_n=4), is_beam=id < 3, age=age))
    plan = planned(scheduler)
    assert [each.sequence_id for each in plan.admitted] == [0, 1]
    scheduler.commit(with_candidates(plan))
    plan = planned(scheduler)
    assert plan.preempted == (1,), "the youngest makes room, and no more than one"
    assert [each.sequence_id for each in plan.admitted] == [2]
    assert scheduler.occupancy.waits[WaitReason.SLOTS] == 2, "the last one is younger than the beams"


def test_undecided_beams_stay_where_all_that_they_have_is_not_enough() -> None:
    """A long prompt waits for what another request holds, and a beam for a slot."""
    scheduler = make_scheduler(num_blocks=10, max_slots=3, max_step_tokens=64)
    scheduler.add(make_sequence(0, 12, age=0))
    for id in 1, 2, 3:
        scheduler.add(make_sequence(id, 3, sampling=Sampling(top_n=4), is_beam=True, age=5))
    scheduler.commit(with_candidates(planned(scheduler)))
    scheduler.add(make_sequence(4, 35, age=1))
    plan = planned(scheduler)
    assert (plan.preempted, [each.sequence_id for each in plan.admitted]) == ((2,), [3])
    scheduler.commit(with_candidates(plan))
    plan = planned(scheduler)
    assert plan.preempted == (), "it can't have room yet"
    scheduler.commit(with_candidates(plan))
    scheduler.finish(0, FinishReason.CANCELLED)
    plan = planned(scheduler)
    assert (plan.preempted, [each.sequence_id for each in plan.admitted]) == ((3, 1), [4])


def test_undecided_beams_let_go_of_their_adapter_for_an_older_request() -> None:
    """The older one is passed no more, so the other beams of the search wait for it, and the undecided ones for them.
    """
    residency = Residency(1)
    residency.know(1, 1)
    residency.know(2, 1)
    scheduler = Scheduler(block_size=4, num_blocks=100, max_slots=2, max_step_tokens=16, adapters=residency)
    residency.orders([1])
    residency.loaded(1)
    for id in 0, 1, 2:
        scheduler.add(make_sequence(id, 5, sampling=Sampling(top_n=4), is_beam=True, age=5, adapter=1))
    scheduler.commit(with_candidates(planned(scheduler)))
    older = make_sequence(3, age=1, adapter=2)
    older.num_passed = admission.MAX_PASSED
    scheduler.add(older)
    assert scheduler.plan() is None
    assert scheduler.order_adapters().unload == (1,), "beams that compute nothing hold it"
    residency.unloaded(1)
    assert scheduler.order_adapters().load == (2,)
    residency.loaded(2)
    assert [each.sequence_id for each in planned(scheduler).admitted] == [3]


def test_no_beam_waits_for_a_block_of_an_undecided_one() -> None:
    """Such a block is shared only when the search has chosen, for which all beams have to be computed."""
    scheduler = make_scheduler(max_slots=3)
    prompt = [*range(100, 108)]

    def compute() -> None:
        scheduler.commit(with_candidates(planned(scheduler)))

    scheduler.add(make_sequence(0, tokens=prompt, max_new=50))
    compute()
    compute()
    beam = make_sequence(1, tokens=prompt, max_new=50, sampling=Sampling(top_n=4), is_beam=True)
    scheduler.add(beam)
    compute()
    for _ in range(5):
        scheduler.extend(beam.id, 7)
        compute()
    scheduler.extend(beam.id, 7)
    forks = [make_sequence(id, tokens=prompt, max_new=50, sampling=Sampling(top_n=4), is_beam=True, age=beam.age)
             for id in (2, 3)]
    for token_id, fork in enumerate(forks, 8):
        fork.tokens = [*beam.tokens[:-1], token_id]
        scheduler.fork(fork, beam.id)
    assert [fork.status for fork in forks] == [Status.RUNNING, Status.WAITING]
    compute()
    assert forks[0].is_undecided
    scheduler.finish(0, FinishReason.CANCELLED)
    scheduler.memory.cache.evict(100)
    compute()
    assert forks[1].is_undecided


def test_forks_of_the_background_leave_others_their_slots() -> None:
    """Of 8 slots one is another's, one the beam's, and one is kept for others, though 6 forks would run at once."""
    scheduler = make_scheduler(max_slots=8)
    sampling, prompt = Sampling(top_n=4), [*range(100, 107)]
    beam = make_sequence(1, tokens=prompt, max_new=50, sampling=sampling, is_beam=True, priority=BACKGROUND)
    for each in (beam, make_sequence(0, max_new=50)):
        scheduler.add(each)
        scheduler.commit(with_candidates(planned(scheduler)))
    scheduler.extend(beam.id, 7)
    for id in range(2, 8):
        scheduler.fork(make_sequence(id, tokens=[*prompt, id], max_new=49, sampling=sampling, is_beam=True,
                                     age=beam.age, priority=BACKGROUND), beam.id)
    assert scheduler.num_running == 7
    assert scheduler.num_waiting == 1
    assert not planned(scheduler).preempted
