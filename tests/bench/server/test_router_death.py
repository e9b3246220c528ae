"""Who was killed is counted by who is dead."""

import asyncio
import sys

import psutil
import pytest

from penstock.bench.server.router_death import Killer


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
