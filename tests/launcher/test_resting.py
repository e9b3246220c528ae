"""Which shards rest after an unload, and which are started anew: small programs that tell of their rest."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.launcher import resting
from penstock.launcher.group import GroupKeeper
from penstock.launcher.processes import Program
from penstock.launcher.resting import Rest, RestingShards
from penstock.launcher.shard_memory import ShardMemory, shard_memories
from penstock.system.memory_file import HEADER_BYTES
from tests.processes import runs

GIB = 1 << 30
SHARD = """
import os, signal, sys
fd = int(sys.argv[2])
signal.signal(signal.SIGUSR1, lambda *_: os.write(fd, b"-"))
signal.signal(signal.SIGUSR2, lambda *_: os.write(fd, b"!"))
os.write(fd, b"!")
while True:
    signal.pause()
"""
RESTLESS = SHARD.replace('os.write(fd, b"-")', "os._exit(0)")


@asynccontextmanager
async def resting_shards(max_bytes: int = GIB) -> AsyncIterator[RestingShards]:
    shards = RestingShards(max_bytes)
    yield shards
    await shards.close()


class Model:
    """A model of two shards, and the file of its weights."""

    def __init__(
        self, folder: Path, name: str, shards: RestingShards, code: str = SHARD, memories: Sequence[ShardMemory] = ()
    ) -> None:
        self.file = folder / name
        self.file.write_text("weights")
        programs = [Program(f"shard {rank}", [sys.executable, "-I", "-S", "-c", code], gives_signs=True)
                    for rank in range(2)]
        targets = [f"unix:{folder}/{name}-{rank}" for rank in range(2)]
        self._keeper = GroupKeeper(lambda: programs, targets, 60, 60, memories,
                                   rest=Rest(shards, name, num_bytes=1000, paths=[self.file]), is_on_demand=True)

    async def load(self) -> list[int]:
        """Loads the model and unloads it; returns the processes of its shards, which may rest now."""
        end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        keeping = asyncio.create_task(self._keeper.keep(end))
        async with asyncio.timeout(20):
            while not self._keeper.is_ready:
                await asyncio.sleep(0.001)
            pids = [shard.pid for shard in self._keeper._shards]
            end.set_result(None)
            assert await keeping is None
        return pids


async def test_shards_are_woken_for_the_next_load_and_none_are_left_at_the_end(tmp_path: Path) -> None:
    async with resting_shards() as shards:
        model = Model(tmp_path, "a", shards)
        first = await model.load()
        for _ in range(3):
            assert all(map(runs, first))
            assert await model.load() == first
    assert not any(map(runs, first))
    assert await model.load() != first, "nothing rests after the end"


async def test_their_other_memory_is_the_systems(tmp_path: Path) -> None:
    with shard_memories(1) as memories:
        async with resting_shards() as shards:
            os.ftruncate(memories[0].fd, 1 << 20)
            await Model(tmp_path, "a", shards, memories=memories).load()
            assert os.fstat(memories[0].fd).st_size == HEADER_BYTES
        os.ftruncate(memories[0].fd, 1 << 20)
        await Model(tmp_path, "a", shards, memories=memories).load()
        assert os.fstat(memories[0].fd).st_size == HEADER_BYTES, "so it is of shards that end"


async def test_a_killed_shard_wakes_nobody(tmp_path: Path) -> None:
    async with resting_shards() as shards:
        model = Model(tmp_path, "a", shards)
        first = await model.load()
        os.kill(first[1], signal.SIGKILL)
        while runs(first[1]):
            await asyncio.sleep(0.001)
        assert not {*first} & {*await model.load()}
        assert not runs(first[0])


async def test_files_that_were_changed_are_read_anew(tmp_path: Path) -> None:
    async with resting_shards() as shards:
        model = Model(tmp_path, "a", shards)
        first = await model.load()
        model.file.write_text("other weights")
        second = await model.load()
        assert not {*first} & {*second}
        assert not any(map(runs, first))
        assert await model.load() == second


async def test_shards_that_end_instead_are_started_anew(tmp_path: Path) -> None:
    async with resting_shards() as shards:
        model = Model(tmp_path, "a", shards, RESTLESS)
        first = await model.load()
        assert not {*first} & {*await model.load()}


async def test_the_least_recently_used_leave_the_others_their_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resting, "_held_bytes", lambda pid: 10)
    async with resting_shards(max_bytes=45) as shards:
        a, b, c = (Model(tmp_path, name, shards) for name in "abc")
        pids = {name: await model.load() for name, model in (("a", a), ("b", b))}
        assert await a.load() == pids["a"]
        pids["c"] = await c.load()
        assert not any(map(runs, pids["b"]))
        assert await a.load() == pids["a"]
        monkeypatch.setattr(resting, "_held_bytes", lambda pid: 30)
        assert not any(map(runs, await b.load())), "it alone is too large"
        assert all(map(runs, [*pids["a"], *pids["c"]]))


async def test_a_load_that_needs_their_memory_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with resting_shards() as shards:
        a, b, c = (Model(tmp_path, name, shards) for name in "abc")
        pids = [await model.load() for model in (a, b)]
        monkeypatch.setattr(resting, "available_memory", lambda: 1500 if all(map(runs, pids[0])) else 2000)
        await c.load()
        assert not any(map(runs, pids[0]))
        assert all(map(runs, pids[1]))


async def test_they_leave_where_memory_runs_out_and_where_one_of_them_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resting, "LOOK_SECONDS", 0.001)
    async with resting_shards() as shards:
        a, b, c = [await Model(tmp_path, name, shards).load() for name in "abc"]
        watching = asyncio.create_task(shards.watch())
        os.kill(b[0], signal.SIGKILL)
        while runs(b[1]):
            await asyncio.sleep(0.001)
        monkeypatch.setattr(resting, "available_memory",
                            lambda: resting.LEAST_AVAILABLE - any(map(runs, a)))
        while any(map(runs, a)):
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        watching.cancel()
        assert all(map(runs, c))
