"""The keeper's turns, with actors that are no Ray's: what it has them do, and what it tells."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from penstock.cluster.config import parse
from penstock.cluster.reports import Report, State, Status

CONFIG = parse({"name": "demo", "model": "/m"}, "cluster.yaml")
READY = Report(State.READY, "127.0.0.1", "127.0.0.1:26001")


@dataclass
class Actor:
    """One that answers with a report, or with none while it has no place."""

    given: Report | None
    calls: list[tuple[str, Any]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        def remote(*arguments: Any) -> "Actor":
            if name != "report":
                self.calls.append((name, *arguments))
            return self
        return SimpleNamespace(remote=remote)

    def __hash__(self) -> int:
        return id(self)


@dataclass
class Scene:
    keeper: Any
    router: Actor
    group: Actor
    ended: list[Actor]
    now: list[float]

    def turn(self, number: int = 5) -> Status:
        for _ in range(number):
            self.now[0] += 1
            self.keeper._turn()
        status: Status = self.keeper.status()
        return status


@pytest.fixture
def start(ray: MagicMock, monkeypatch: pytest.MonkeyPatch) -> Callable[[Report | None], Scene]:
    ray.util.list_named_actors = list
    ray.wait = lambda actors, **_: ([each for each in actors if each.given is not None], [])
    ray.get = lambda actor: actor.given

    def made(report: Report | None) -> Scene:
        from penstock.cluster import keeper, places

        scene = Scene(None, Actor(report), Actor(READY), [], [0.0])
        for name, value in {"make_router": lambda *_: scene.router, "make_group": lambda *_: [scene.group],
                            "end": scene.ended.append, "reserved": lambda *_: set(), "remove_place": lambda *_: None,
                            }.items():
            monkeypatch.setattr(places, name, value)
        monkeypatch.setattr(keeper, "logs", MagicMock())
        monkeypatch.setattr(keeper, "reset_niceness", lambda: None)
        monkeypatch.setattr(keeper, "threading", SimpleNamespace(Thread=MagicMock(), Lock=MagicMock()))
        monkeypatch.setattr(keeper, "time", SimpleNamespace(monotonic=lambda: scene.now[0]))
        scene.keeper = keeper.Keeper(CONFIG, "127.0.0.1")
        return scene

    return made


def test_the_router_is_told_where_groups_are(start: Callable[[Report | None], Scene]) -> None:
    scene = start(READY)
    assert scene.turn().router == ("ready", "127.0.0.1:26001")
    assert set(map(str, scene.router.calls)) == {"('follow', ['127.0.0.1:26001'])"}


def test_why_a_router_does_not_start_is_told(start: Callable[[Report | None], Scene]) -> None:
    scene = start(Report(State.STARTING, "127.0.0.1", trouble="its launcher ended with 2"))
    assert scene.turn().trouble == "router: its launcher ended with 2"


def test_a_router_without_a_place_is_told_nothing_and_keeps_nothing_from_ending(
    start: Callable[[Report | None], Scene]
) -> None:
    scene = start(None)
    scene.turn()
    scene.keeper.end()
    assert scene.turn(20).router is None
    assert scene.ended == [scene.router]
    assert scene.router.calls == []
    assert ("stop",) in scene.group.calls
    scene.group.given = Report(State.ENDED, "127.0.0.1")
    assert scene.turn().is_over


def test_a_router_ends_in_order_and_groups_after_it(start: Callable[[Report | None], Scene]) -> None:
    scene = start(READY)
    scene.turn()
    scene.keeper.end()
    scene.turn(40)
    assert ("stop",) in scene.router.calls
    assert scene.ended == []
    assert scene.group.calls == []
    scene.router.given = Report(State.ENDED, "127.0.0.1")
    scene.turn()
    assert scene.ended == [scene.router]
    assert ("stop",) in scene.group.calls
