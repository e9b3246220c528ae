"""The actors that run launchers, with children that are no launchers."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from penstock.cluster.config import parse
from penstock.cluster.reports import Report, State

MACHINE = "127.0.0.1"
METRICS = "tgi_queue_size 3.0\ntgi_batch_current_size 2.0\n"


@dataclass
class Launcher:
    """A child that runs until it is given another status."""

    arguments: list[str]
    mark: str = ""
    status: int | None = None
    is_stopping: bool = False


@dataclass
class Scene:
    hosts: Any
    events: list[str] = field(default_factory=list)
    children: list[Launcher] = field(default_factory=list)
    now: list[float] = field(default_factory=lambda: [100.0])

    def router(self, answers: dict[str, str], **more: Any) -> Any:
        """A host whose router gives these answers."""
        host = self.hosts.RouterHost(parse({"name": "demo", "model": "/m", "router": more}, "cluster.yaml"), MACHINE)
        host._ask = answers.get
        return host


@pytest.fixture
def scene(ray: MagicMock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Scene:
    from penstock.cluster import hosts

    made = Scene(hosts)
    ray.util.get_node_ip_address = lambda: MACHINE

    def child(arguments: list[str], mark: str = "") -> Launcher:
        made.events.append("start")
        made.children.append(Launcher(arguments, mark))
        return made.children[-1]

    def end_marked(mark: str) -> int:
        made.events.append(f"end {mark}")
        return 0

    monkeypatch.setattr(hosts, "Child", child)
    monkeypatch.setattr(hosts, "end_marked", end_marked)
    monkeypatch.setattr(hosts, "logs", MagicMock())
    monkeypatch.setattr(hosts, "reset_niceness", lambda: None)
    monkeypatch.setattr(hosts.tempfile, "TemporaryDirectory", lambda **_: SimpleNamespace(name=str(tmp_path)))
    monkeypatch.setattr(hosts, "time", SimpleNamespace(monotonic=lambda: made.now[0]))
    return made


def test_what_is_left_of_a_router_ends_before_the_next_one_starts(scene: Scene) -> None:
    host = scene.router({})
    host.follow(["127.0.0.1:26001"])
    scene.children[0].status = 137
    scene.now[0] += 60
    host.report()
    assert scene.events == ["end router of demo at 3000", "start"] * 2
    assert {child.mark for child in scene.children} == {"router of demo at 3000"}


def test_a_router_tells_its_load(scene: Scene) -> None:
    host = scene.router({"/readyz": "", "/metrics": METRICS})
    host.follow(["127.0.0.1:26001"])
    report: Report = host.report()
    assert (report.state, report.trouble, report.load.num_waiting if report.load else 0) == (State.READY, "", 3)


def test_a_router_whose_metrics_do_not_tell_is_a_trouble(scene: Scene) -> None:
    host = scene.router({"/readyz": ""})
    host.follow(["127.0.0.1:26001"])
    assert host.report().trouble == "the router does not tell its metrics: nothing is scaled"


@pytest.mark.parametrize("where", ["options", "environment"])
def test_the_key_and_the_scheme_are_those_that_the_router_finds(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    given = {"metrics_key": "secret", "ssl_certfile": "/tls.crt", "ssl_keyfile": "/tls.key"}
    if where == "environment":
        for name, value in given.items():
            monkeypatch.setenv(name.upper(), value)
    host = scene.router({}, options=given if where == "options" else {})
    assert host._key() == {"Authorization": "Bearer secret"}
    host.follow(["127.0.0.1:26001"])
    assert host.report().address == "https://127.0.0.1:3000"
