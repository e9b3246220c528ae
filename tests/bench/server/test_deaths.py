"""Who was killed is counted by who is dead; and what becomes of lost, changed and late answers."""

import asyncio
import sys
from math import inf
from typing import Any

import click
import psutil
import pytest
from click.testing import CliRunner

from penstock.bench.server import deaths
from penstock.bench.server.deaths import phases
from penstock.bench.server.disturbing import Killer, Streamed

LINE = "2026-11-22T19:27:43.425683Z    INFO shard-{}: ready in 9 s: Python 0.{}5, imports {}.5, first steps 0.36\n"
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
def test_streams_that_were_lost_or_changed_fail_the_measurement(other: Streamed) -> None:
    with pytest.raises(click.ClickException, match="2 streams were lost or changed"):
        deaths.tell_rounds([WHOLE, WHOLE], [0.5, 0.5], [([WHOLE, other], 10.1)] * 2, 1.0)


@pytest.mark.parametrize(("scenario", "kills", "complaint"), [
    ("router", "0", "0 is not in the range x>=1"), ("server", "2", "a server is killed once, for good")])
def test_kills_that_are_not_to_be_had_are_refused_before_the_load(scenario: str, kills: str, complaint: str) -> None:
    told = CliRunner().invoke(deaths.main, [scenario, "--kills", kills])
    assert told.exit_code == 2
    assert complaint in told.output


def test_the_phases_of_new_shards() -> None:
    log = "".join(LINE.format(rank, number, number) for number in (9, 1, 3, 2) for rank in (1, 0)) + "shard-0: more\n"
    assert phases(log) == {"Python": 0.25, "imports": 2.5, "first steps": 0.36}


async def test_processes_that_are_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    async def watch(self: Killer, killed_at: float) -> None:
        self.back.append(0.0)

    monkeypatch.setattr(Killer, "_watch", watch)
    sleeping = [await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(60)")
                for _ in range(2)]
    found = [[psutil.Process(process.pid) for process in sleeping], []]
    killer = Killer(lambda: found.pop(0), "", 30, 2)
    killer.note(9)
    assert (killer.victims, killer.num_dead) == ([], 0)
    killer.note(10)
    await killer.all_back()
    while killer.num_dead < 2:
        await asyncio.sleep(0.01)
    assert len(killer.back) == 1
    for process in sleeping:
        await process.wait()
    assert killer.num_dead == 2
    with pytest.raises(LookupError, match="no process to be killed"):
        killer.note(20)
