"""Seeded traffic through the scheduler: the invariants hold after every verb, and planted faults break them."""

import pytest

from penstock.router.scheduling.scheduler import Scheduler
from tests.router.scheduling import faulty_schedulers
from tests.router.scheduling.mixed_simulation import MixedSimulation
from tests.router.scheduling.simulation import Simulation

DEPTHS = [pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.every_case), 3]
"""How many steps are planned ahead: the middle one finds what another does."""


def check_traffic(seed: int, depth: int, num_rounds: int) -> None:
    simulation = Simulation(seed, depth)
    simulation.run(num_rounds)
    for what, least in {"steps": 900, "ended": 50, "preempted": 5, "hits": 20, "losses": 1, "memories lost": 0.3,
                        "masked": 150, "prompt_logprobs": 50, "adapter loads": 10, "adapter unloads": 10}.items():
        assert simulation.counts[what] * 1000 >= least * num_rounds, f"too little happened: {simulation.counts}"


@pytest.mark.parametrize(("seed", "depth"), [(1, 1), (2, 2), (3, 3)])
def test_traffic_keeps_the_invariants(seed: int, depth: int) -> None:
    check_traffic(seed, depth, 700)


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_budget_that_varies_keeps_the_invariants(depth: int) -> None:
    simulation = Simulation(4, depth, budget_varies=True)
    simulation.run(400)
    for what, least in {"steps": 250, "ended": 25, "preempted": 1, "hits": 5, "losses": 1, "budgets": 15}.items():
        assert simulation.counts[what] >= least, f"too little happened: {simulation.counts}"


@pytest.mark.parametrize("depth", DEPTHS)
def test_states_are_carried_from_position_0_without_a_gap(depth: int) -> None:
    simulation = Simulation(5, depth, carries_states=True)
    simulation.run(400)
    for what, least in {"steps": 250, "ended": 25, "preempted": 1, "losses": 1}.items():
        assert simulation.counts[what] >= least, f"too little happened: {simulation.counts}"
    assert simulation.counts["hits"] == 0


@pytest.mark.parametrize("depth", DEPTHS)
def test_guesses_change_no_answer(depth: int) -> None:
    simulation = Simulation(6, depth, guesses=5)
    simulation.run(700)
    for what, least in {"steps": 420, "ended": 40, "preempted": 2, "hits": 10, "losses": 1, "masked": 70,
                        "drafts": 240, "accepted": 140}.items():
        assert simulation.counts[what] >= least, f"too little happened: {simulation.counts}"


@pytest.mark.parametrize("depth", DEPTHS)
def test_forks_change_no_answer(depth: int) -> None:
    simulation = Simulation(6, depth, guesses=5, is_quiet=True)
    simulation.run(1000)
    for what, least in {"steps": 350, "ended": 40, "preempted": 2, "hits": 10, "losses": 1, "masked": 75,
                        "drafts": 250, "accepted": 150, "forks": 20, "forks taken": 2}.items():
        assert simulation.counts[what] >= least, f"too little happened: {simulation.counts}"


@pytest.mark.parametrize("depth", DEPTHS)
def test_proposals_change_no_answer(depth: int) -> None:
    simulation = Simulation(6, depth, guesses=5, has_proposals=True)
    simulation.run(700)
    for what, least in {"steps": 420, "ended": 40, "preempted": 2, "hits": 10, "losses": 1, "masked": 70,
                        "drafts": 120, "proposals": 120, "accepted": 140,
                        "proposals_ahead": 10 * (depth > 1)}.items():
        assert simulation.counts[what] >= least, f"too little happened: {simulation.counts}"


@pytest.mark.parametrize("depth", DEPTHS)
def test_classes_keep_their_order(depth: int) -> None:
    simulation = MixedSimulation(1, depth)
    simulation.run(700)
    for what, least in {"steps": 420, "ended": 40, "preempted": 2, "hits": 10, "losses": 1, "passed": 10,
                        "background rows": 50}.items():
        assert simulation.counts[what] >= least, f"too little happened: {simulation.counts}"


@pytest.mark.parametrize("depth", DEPTHS)
def test_the_background_has_what_is_left_beside_guesses(depth: int) -> None:
    simulation = MixedSimulation(8, depth, is_quiet=True, guesses=5)
    simulation.run(1000)
    for what, least in {"steps": 350, "ended": 25, "drafts": 50, "background rows": 50,
                        "background alone": 10}.items():
        assert simulation.counts[what] >= least, f"too little happened: {simulation.counts}"


def test_a_prefix_that_is_shared_without_its_state_is_noticed() -> None:
    simulation = Simulation(5, 2, carries_states=True)
    simulation.scheduler.memory.shares_prefixes = True
    with pytest.raises(AssertionError, match="its state is at position 0"):
        simulation.run(800)


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("seed", [10, *(pytest.param(seed, marks=pytest.mark.every_case) for seed in (11, 12))])
def test_a_day_of_traffic_keeps_the_invariants(seed: int, depth: int) -> None:
    check_traffic(seed, depth, 7000)


def test_the_same_traffic_gives_the_same_plans() -> None:
    first, second = Simulation(2, 2), Simulation(2, 2)
    for simulation in (first, second):
        simulation.run(200)
    assert first.counts["losses"]
    assert first.plans == second.plans


def name_of(value: object) -> str:
    return value.__name__ if isinstance(value, type) else ""


def check_caught(simulation: Simulation, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        simulation.run(3000)


@pytest.mark.parametrize(("faulty", "message"), [
    (faulty_schedulers.DoubleFree, "holders|nobody holds it|free"),
    (faulty_schedulers.CachedWhenPlanned, "while a step in flight writes to it|cached but holds other tokens"),
    (faulty_schedulers.SlotReused, "slot"),
    (faulty_schedulers.LostPin, "slot|steps in flight name"),
    (faulty_schedulers.LeakedBlock, "holders|blocks are still in use"),
    (faulty_schedulers.SkippedVictim, "waiting sequences are"),
    (faulty_schedulers.SharedAcrossNamespaces, "holds other tokens|reads block"),
    (faulty_schedulers.SharedAcrossAdapters, "holds other tokens|reads block"),
    (faulty_schedulers.AdapterEvictedInUse, "needs the adapter ., which is not loaded|sequences with a slot use"),
    (faulty_schedulers.AdapterFreeWhenFinished, "sequences with a slot use"),
    (faulty_schedulers.AnotherAdapterAfterReplay, "another's adapter"),
    (faulty_schedulers.UnmaskedPrefill, "who waits for a mask"),
    (faulty_schedulers.HitsDespitePromptLogprobs, "a hit, though prompt logprobs are missing"),
    (faulty_schedulers.PromptLogprobsTakenForGranted,
     "prompt logprobs of other tokens are asked for|a token comes before|a hit, though prompt logprobs are missing"),
    (faulty_schedulers.EndedRowsFree, "charged for"),
    (faulty_schedulers.ReplaysCountTwice, "computed twice"),
    (faulty_schedulers.WaitsOfPassedUntold, "and is told of"),
], ids=name_of)
def test_catches(faulty: type[Scheduler], message: str) -> None:
    check_caught(Simulation(2, 2, faulty), message)


@pytest.mark.parametrize(("faulty", "message"), [
    (faulty_schedulers.RejectedTokenCached, "cached but holds other tokens|while a step in flight writes to it"),
    (faulty_schedulers.NothingTakenBack, "starts at|drafts are taken back|guesses follow|brings other tokens"),
    (faulty_schedulers.UnmaskedGuesses, "who waits for a mask"),
    (faulty_schedulers.PlannedWhileVerified, "planned before their tokens are back|a token that was never sampled"),
    (faulty_schedulers.StaleSample, "a token that was never sampled|starts at|before their tokens are back"),
    (faulty_schedulers.BlockLostWithGuess, "holders|block table"),
], ids=name_of)
@pytest.mark.parametrize("has_proposals", [pytest.param(False, marks=pytest.mark.slow), True])
def test_catches_faults_of_guessing(faulty: type[Scheduler], message: str, has_proposals: bool) -> None:
    check_caught(Simulation(7, 2, faulty, guesses=5, has_proposals=has_proposals), message)


@pytest.mark.parametrize(("faulty", "message"), [
    (faulty_schedulers.ForkWithoutCopy, "reads block .+ at"),
    (faulty_schedulers.LeakedCopy, "holders"),
    (faulty_schedulers.ForkSlotNotCleared, "is given out twice"),
    (faulty_schedulers.ForkTakenWithoutItsBlocks, "block table|blocks are taken|reads block|cached but holds"),
], ids=name_of)
def test_catches_faults_of_forks(faulty: type[Scheduler], message: str) -> None:
    check_caught(Simulation(5, 2, faulty, guesses=5, is_quiet=True), message)


@pytest.mark.parametrize(("faulty", "message"), [
    (faulty_schedulers.NoWayForOthers, "others wait for .+ that the background has"),
    (faulty_schedulers.BackgroundBesidePrompts, "a row beside a prompt of others|wait for two steps"),
    (faulty_schedulers.BackgroundFirst, "comes before one of others|wait for ever"),
    (faulty_schedulers.PriorityWithoutAge, "which has waited long enough|sequences are"),
    (faulty_schedulers.PriorityLost, "sequences are"),
], ids=name_of)
def test_catches_faults_of_classes(faulty: type[Scheduler], message: str) -> None:
    check_caught(MixedSimulation(7, 2, faulty), message)
