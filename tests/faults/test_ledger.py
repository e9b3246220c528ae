"""What a fault may cost, and what it may not."""

import pytest

from tests.faults.ledger import Ledger, Loss, Strike
from tests.faults.schedule import BY_NAME, Event


def struck(kind: str) -> Ledger:
    """A fault that began at 10, had done its damage at 11, and was over at 20."""
    event = Event(1, BY_NAME[kind], 0.0, overlaps=False, ranks=(), seconds=0.0, seed=0)
    return Ledger([Strike(event, began_at=10.0, struck_at=11.0, over_at=20.0)])


def lost(began_at: float, ended_at: float, *, had_bytes: bool = False, is_connection: bool = True) -> Loss:
    return Loss(began_at, ended_at, "", had_bytes, is_connection)


def test_a_killed_router_costs_what_it_had_accepted() -> None:
    ledger = struck("router killed")
    assert ledger.permits(lost(5, 10.5, had_bytes=True))
    assert not ledger.permits(lost(5, 9, had_bytes=True)), "it was cut before"
    assert not ledger.permits(lost(12, 13)), "it came to the listening socket, which outlives the router"
    assert not ledger.permits(lost(5, 130, is_connection=False)), "a connection that hangs is never allowed"


def test_a_killed_launcher_costs_new_requests() -> None:
    ledger = struck("launcher killed")
    assert ledger.permits(lost(12, 12.1))
    assert not ledger.permits(lost(5, 12)), "the router had accepted it"
    assert not ledger.permits(lost(12, 13, had_bytes=True)), "it was being answered"
    assert not ledger.permits(lost(21, 22)), "a server runs again"


@pytest.mark.parametrize("kind", ["shards killed", "router asked to end", "disk full, shards killed"])
def test_other_faults_cost_nothing(kind: str) -> None:
    assert not struck(kind).permits(lost(5, 10.5))
    assert not struck(kind).permits(lost(12, 13))


def test_the_longest_silence_of_a_fault() -> None:
    ledger = struck("shards killed")
    for times in ([1, 9, 12], [15, 16], [21, 40]):
        ledger.silent(times)
    assert ledger.longest_silence(ledger.strikes[0]) == 3


def test_a_silence_is_due_to_the_fault_that_it_had_most_of() -> None:
    ledger = struck("template processes killed")
    next_one = Strike(ledger.strikes[0].event, began_at=21.0, struck_at=22.0, over_at=30.0)
    ledger.strikes.append(next_one)
    ledger.silent([19, 29])
    assert ledger.longest_silence(ledger.strikes[0]) == 0
    assert ledger.longest_silence(next_one) == 10
