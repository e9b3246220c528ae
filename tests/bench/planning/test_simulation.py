"""One group's answers on paper, beside what follows by hand."""

from dataclasses import dataclass

import pytest

from penstock.bench.planning.costs import Measured, StepWork
from penstock.bench.planning.groups import Target, fewest_groups, least_groups
from penstock.bench.planning.simulation import Room, Simulation, step_tokens
from penstock.bench.planning.traffic import Traffic

ROOM = Room(slots=8, kv_tokens=1 << 14, block_size=16)
STEP = Measured(step=0.1, sample=0.0, token=0.0, read=0.0, pair=0.0, request_seconds=0.0)


@dataclass
class Watched:
    """A cost of one second for each step, which keeps what the steps did."""

    request_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.works: list[StepWork] = []

    def seconds(self, work: StepWork) -> float:
        self.works.append(work)
        return 1.0


def test_a_request_alone() -> None:
    cost = Measured(step=0.1, sample=0.0, token=0.001, read=0.0, pair=0.0, request_seconds=0.02)
    outcome = Simulation(Traffic(prompt=51, answer=5, rate=1e-9, number=1), ROOM, cost).run()
    assert outcome.first_token(50) == pytest.approx(0.02 + 0.1 + 50 * 0.001)
    assert outcome.per_token(50) == pytest.approx(0.1)
    assert outcome.seconds == pytest.approx(0.17 + 4 * 0.1)
    assert outcome.busy == pytest.approx(0.55)


def test_a_request_that_comes_amid_steps_waits_for_those_that_are_planned() -> None:
    """The step that runs and the one behind it were planned before; then comes its own."""
    traffic = Traffic(prompt=8, answer=100, rate=1.0, number=2)
    outcome = Simulation(traffic, ROOM, STEP).run()
    second = outcome.requests[1].at
    begun = int(second / 0.1)
    assert outcome.answered[1].first_after == pytest.approx(0.1 * (begun + 3) - second)


def test_clients_keep_so_many_requests_at_work() -> None:
    cost = Watched()
    outcome = Simulation(Traffic(prompt=4, answer=10, clients=5, number=15), ROOM, cost).run()
    assert max(work.samples for work in cost.works) == 5
    assert outcome.tokens_per_second == pytest.approx(5.0)  # three waves of ten steps each
    assert outcome.seconds == pytest.approx(30.0)


def test_a_small_memory_lets_few_run_at_once() -> None:
    traffic = Traffic(prompt=64, answer=32, clients=8, number=16)
    wide, narrow = (Simulation(traffic, Room(8, tokens, 16), STEP).run() for tokens in (1 << 14, 200))
    assert narrow.tokens_per_second < wide.tokens_per_second / 2
    assert narrow.first_token(90) > 10 * wide.first_token(50)


def test_more_than_a_group_can_do_is_noticed() -> None:
    most = 8 / (20 * 0.1)
    busy, flooded = (Simulation(Traffic(16, 20, rate=share * most, number=90), ROOM, STEP).run()
                     for share in (0.5, 1.5))
    assert busy.keeps_up
    assert not flooded.keeps_up


def test_varied_lengths_have_the_means_that_were_asked_for() -> None:
    requests = Traffic(prompt=100, answer=50, rate=2.0, number=3000, varied=True).requests()
    assert sum(len(request.prompt) for request in requests) / 3000 == pytest.approx(100, rel=0.05)
    assert sum(request.answer for request in requests) / 3000 == pytest.approx(50, rel=0.05)
    assert requests[-1].at / 3000 == pytest.approx(0.5, rel=0.05)
    assert max(len(request.prompt) + request.answer for request in requests) <= 600


@pytest.mark.parametrize(("token", "tokens"), [(1e-9, 4096), (0.001, 240), (1.0, 16)])
def test_steps_are_as_long_as_streams_may_pause(token: float, tokens: int) -> None:
    cost = Measured(step=0.0, sample=0.0, token=token, read=0.0, pair=0.0, request_seconds=0.0)
    assert step_tokens(cost) == pytest.approx(tokens, abs=16)


TARGET = Target(first_token=0.5, percent=90)


@pytest.mark.parametrize("rate", [1.0, 10.0, 40.0])
def test_the_fewest_groups(rate: float) -> None:
    """A group of 8 slots does 4 requests of 20 tokens a second, if all slots are always taken."""
    traffic = Traffic(16, 20, rate=rate, number=60)
    found = fewest_groups(traffic, TARGET, ROOM, STEP)
    assert found is not None
    groups, outcome = found
    assert TARGET.is_met(outcome)
    assert 0.8 * rate / 4 <= groups <= 1 + rate / 2
    assert least_groups(traffic, ROOM, STEP) <= groups
    if groups > 1:
        assert not TARGET.is_met(Simulation(traffic.of_one(groups - 1), ROOM, STEP).run())


def test_what_no_number_of_groups_meets() -> None:
    assert fewest_groups(Traffic(16, 100, rate=1.0), Target(0.05, 90), ROOM, STEP) is None
    assert fewest_groups(Traffic(1 << 14, 100, rate=1.0), TARGET, ROOM, STEP) is None
