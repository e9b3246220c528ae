"""One machine's part of a group: its shards are small programs, the other machines are scripted."""

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from penstock.launcher import group
from penstock.launcher.group import MAX_DEATHS, GroupKeeper, Loss
from penstock.launcher.nodes import LostElsewhere, Start
from penstock.launcher.processes import Program
from penstock.launcher.shard_memory import ShardMemory
from penstock.system.arguments import InvalidArgument
from penstock.system.signs import PEER_LOST

RESTS = "os.write(int(sys.argv[2]), b'!'); time.sleep(60)"
LOADS = "[(os.write(int(sys.argv[2]), b'.'), time.sleep(0.1)) for _ in range(600)]"


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "BACKOFF_SECONDS", (0.0,) * 4)


class OtherMachines:
    """Machines that lose their shards `seconds` after each of the first `losses` starts, in such ways."""

    def __init__(self, losses: Sequence[LostElsewhere], refusal: str = "", seconds: float = 0.3) -> None:
        self._seconds = seconds
        self.losses = [*losses]
        self.refusal = refusal
        self.started: Start | None = None
        self.lost: asyncio.Future[LostElsewhere] = asyncio.get_running_loop().create_future()
        self.on_progress: Callable[[], None] = lambda: None
        self.ends: list[LostElsewhere] = []
        self.num_starts = 0
        self.heard = asyncio.Event()

    async def begin(self) -> None:
        if self.refusal:
            raise InvalidArgument(self.refusal)
        self.num_starts += 1
        self.lost = asyncio.get_running_loop().create_future()
        if self.losses:
            asyncio.get_running_loop().call_later(self._seconds, self.lost.set_result, self.losses.pop(0))

    def end(self, how: LostElsewhere) -> None:
        self.ends.append(how)

    def note_progress(self) -> None:
        self.heard.set()


def part(nodes: OtherMachines, folder: Path, code: str, memories: Sequence[ShardMemory] = ()) -> GroupKeeper:
    program = Program("shard 0", [sys.executable, "-I", "-S", "-c", f"import os, sys, time; {code}"], gives_signs=True)
    return GroupKeeper(lambda: [program], [f"unix:{folder}/shard-0"], 5, 5, memories, nodes=nodes)


async def kept(keeper: GroupKeeper, nodes: OtherMachines, num_starts: int) -> Loss | None:
    """Keeps a group until the machines have begun so often, and ends it."""
    end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(40):
        keeping = asyncio.create_task(keeper.keep(end))
        while nodes.num_starts < num_starts and not keeping.done():
            await asyncio.sleep(0.05)
        if not end.done():
            end.set_result(None)
        return await keeping


@pytest.mark.parametrize("is_from_outside", [True, False])
async def test_a_loss_elsewhere_starts_the_shards_anew(tmp_path: Path, is_from_outside: bool) -> None:
    memory = ShardMemory(0)
    os.ftruncate(memory.fd, 1 << 20)
    nodes = OtherMachines([LostElsewhere("of node 1: shard 1 died", is_from_outside)])
    assert await kept(part(nodes, tmp_path, RESTS, [memory]), nodes, 2) is None
    assert [how.what for how in nodes.ends] == ["shards of node 1: shard 1 died", "its launcher ends"]
    assert (os.fstat(memory.fd).st_size == 1 << 20) == is_from_outside
    os.close(memory.fd)


async def test_losses_elsewhere_are_not_for_this_machine_to_give_up(tmp_path: Path) -> None:
    nodes = OtherMachines([LostElsewhere("of node 1: it is away")] * (MAX_DEATHS + 1), seconds=0.05)
    assert await kept(part(nodes, tmp_path, LOADS), nodes, MAX_DEATHS + 2) is None


async def test_a_shard_that_misses_one_of_another_machine_refuses_nothing(tmp_path: Path) -> None:
    """Though it ends, before it was ready, before the other's launcher has told: so it does each time."""
    nodes = OtherMachines([LostElsewhere("of node 1: shard 1 died")] * (MAX_DEATHS + 1))
    nodes.started = Start("a", ("127.0.0.1", "127.0.0.1"))
    assert await kept(part(nodes, tmp_path, f"sys.exit({PEER_LOST})"), nodes, MAX_DEATHS + 2) is None
    assert {how.what for how in nodes.ends[:-1]} == {"shards of node 1: shard 1 died"}


async def test_own_losses_are_told_and_given_up(tmp_path: Path) -> None:
    nodes = OtherMachines([])
    loss = await kept(part(nodes, tmp_path, "os.kill(os.getpid(), 9)"), nodes, 99)
    assert str(loss) == "shard 0 was ended by SIGKILL"
    assert [how.what for how in nodes.ends] == ["shard 0 was ended by SIGKILL"] * MAX_DEATHS


async def test_a_machine_that_does_not_belong_to_the_group_ends(tmp_path: Path) -> None:
    nodes = OtherMachines([], refusal="there are no such nodes")
    loss = await kept(part(nodes, tmp_path, RESTS), nodes, 99)
    assert loss is not None
    assert (str(loss), loss.is_refusal) == ("the group could not be started: there are no such nodes", True)


async def test_progress_is_told_to_the_others(tmp_path: Path) -> None:
    nodes = OtherMachines([])
    end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    keeping = asyncio.create_task(part(nodes, tmp_path, LOADS).keep(end))
    await asyncio.wait_for(nodes.heard.wait(), 20)
    end.set_result(None)
    assert await keeping is None
