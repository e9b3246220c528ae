"""The decoder of server-sent events, and a call's patience."""

import pytest

from penstock.client.errors import AnotherAnswer, Differs, Gone, Unreachable
from penstock.client.events import SIGN_OF_LIFE, EventDecoder, ServerEvent
from penstock.client.patience import Patience

STREAM = ("data: {\"a\": \"é\"}\nid: x.1\n\n:\n\ndata:b\r\nid:x.2\r\n\r\nretry: 5000\n\ndata: c\n\nid: x.3\n\n"
          "data: not whole").encode()
EVENTS = [ServerEvent('{"a": "é"}', "x.1"), SIGN_OF_LIFE, ServerEvent("b", "x.2"), SIGN_OF_LIFE, ServerEvent("c")]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_come_in_any_pieces(size: int) -> None:
    decoder = EventDecoder()
    pieces = [STREAM[start:start + size] for start in range(0, len(STREAM), size)]
    assert [event for piece in pieces for event in decoder.feed(piece)] == EVENTS


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_pauses_grow_until_something_comes() -> None:
    patience = Patience(["a", "b"], 120.0, 1, now=lambda: 0.0, draw=lambda: 1.0)
    error = ConnectionError("x")
    assert [(patience.url, patience.failed(error)) for _ in range(8)] == [
        ("b", 0.05), ("a", 0.1), ("b", 0.2), ("a", 0.4), ("b", 0.8), ("a", 1.6), ("b", 2.0), ("a", 2.0)]
    patience.progress()
    assert patience.failed(error) == 0.05


def test_the_time_counts_from_the_first_failure_behind_which_nothing_came() -> None:
    clock = Clock()
    patience = Patience(["a"], 10.0, now=clock, draw=lambda: 0.0)
    clock.now = 500.0  # an answer may take its time
    patience.failed(ConnectionError("x"))
    clock.now = 509.0
    patience.failed(ConnectionError("x"))
    patience.progress()
    clock.now = 515.0
    patience.failed(ConnectionError("x"))
    clock.now = 525.0
    with pytest.raises(Unreachable, match="nothing came of a for 10 s; at last of a: ConnectionError: x"):
        patience.failed(ConnectionError("x"))


def differs() -> Differs:
    return Differs(AnotherAnswer("another one", 409))


def test_servers_that_would_give_another_answer_are_left_out() -> None:
    now = 0.0
    patience = Patience(["a", "b", "c"], 10.0, 2, lambda: now)
    assert patience.failed(differs()) == 0
    assert patience.url == "a"
    assert patience.failed(differs()) == 0
    assert patience.url == "b"
    assert 0 < patience.failed(differs()) < 1  # may be a balancer
    assert patience.url == "b"
    now = 5.0
    with pytest.raises(AnotherAnswer, match="another one"):
        patience.failed(differs())


def test_another_answer_is_told_though_the_other_servers_are_dead() -> None:
    now = 0.0
    patience = Patience(["a", "b"], 10.0, 1, lambda: now)
    patience.failed(differs())
    patience.failed(ConnectionError("x"))
    now = 10.0
    with pytest.raises(AnotherAnswer):
        patience.failed(ConnectionError("x"))


def test_a_server_that_worked_on_the_answer_counts_though_nothing_came() -> None:
    now = 0.0
    patience = Patience(["a"], 10.0, 0, lambda: now, lambda: 0.0)
    patience.failed(ConnectionError("x"))
    now = 150.0
    patience.failed(ConnectionError("x"))
    now = 160.0
    with pytest.raises(Unreachable):
        patience.failed(Gone("away"))
