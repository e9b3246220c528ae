"""What the benchmark of groups and that of routers' deaths make of lost, changed and late answers."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from penstock.bench.server import cell, groups, router_death
from penstock.bench.server.groups import Streamed

WHOLE = Streamed([(1, -1.0), (2, -1.0)], [10.0, 10.5], is_whole=True)


@pytest.mark.parametrize(("times", "is_whole", "killed_at", "longest"), [
    ([10.0, 10.2, 10.5], True, 10.1, pytest.approx(0.3)),
    ([10.0, 10.2, 10.5], True, 9.0, pytest.approx(1.0)),
    ([10.0], True, 10.1, 0.0),
    ([10.0], False, 10.1, inf),
    ([], False, 10.1, inf),
])
def test_the_longest_gap_of_a_stream(times: list[float], is_whole: bool, killed_at: float, longest: Any) -> None:
    assert Streamed([], times, is_whole).longest_gap(killed_at) == longest


@pytest.mark.parametrize("other", [Streamed([(1, -1.0), (3, -1.0)], [10.0, 10.5], is_whole=True), Streamed()])
def test_streams_that_were_lost_or_changed_fail_the_measurement(
    monkeypatch: pytest.MonkeyPatch, other: Streamed
) -> None:
    @contextmanager
    def made(*_: Any) -> Iterator[Any]:
        yield SimpleNamespace(series=lambda: {'penstock_moved_requests_total{cause="lost"}': 1.0})

    async def undisturbed(*_: Any) -> list[Streamed]:
        return [WHOLE, WHOLE]

    async def kill(*_: Any) -> tuple[list[Streamed], float]:
        return [WHOLE, other], 10.1

    for name, value in (("cell", made), ("undisturbed", undisturbed), ("kill", kill)):
        monkeypatch.setattr(groups, name, value)
    with pytest.raises(click.ClickException, match="2 streams were lost or changed"):
        groups.measure_kills(groups.DEMO_MODEL, 2, 2, 2)


def test_groups_that_never_serve_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell.Cell, "series", lambda self: {'penstock_groups{state="serving"}': 1.0})
    monkeypatch.setattr(cell, "START_SECONDS", 0.0)
    with pytest.raises(click.ClickException, match="1 of 2 groups serve after 0 s"):
        cell.Cell("", 0, SimpleNamespace(), {}).wait_until_serving(2)  # type: ignore[arg-type]


@pytest.mark.parametrize("program", [groups, router_death])
def test_no_kills_are_refused_before_the_load(program: Any) -> None:
    told = CliRunner().invoke(program.main, ["--kills", "0"])
    assert told.exit_code == 2
    assert "0 is not in the range x>=1" in told.output
