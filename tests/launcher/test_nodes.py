"""The launchers of a group's machines, over real connections, with nothing to start."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from penstock.bench.programs.children import free_port
from penstock.launcher import node_link
from penstock.launcher.group_place import GroupPlace
from penstock.launcher.launch import bind
from penstock.launcher.node_member import Member
from penstock.launcher.nodes import Leader, LostElsewhere
from penstock.system.arguments import InvalidArgument
from penstock.system.wire_tls import WireTls
from tests.certificates import Authority, authority

_T = TypeVar("_T")


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left_open() -> Iterator[None]:
    """Else it would be found by the tests of another module."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="module")
def tls(ca: Authority) -> WireTls:
    return ca.issue("node")


class Machines:
    """Three machines of a group."""

    def __init__(self, tls: WireTls | None) -> None:
        self.port = free_port()
        self.tls = tls
        self.num_drains = 0
        self._serving: asyncio.Task[None] | None = None
        self._members: list[Member] = []

    def place(self, number: int, **changes: Any) -> GroupPlace:
        return GroupPlace(**{"name": "g", "host": "127.0.0.1", "port": 1, "num_shards": 6, "nnodes": 3,
                             "node_rank": number, "master": ("127.0.0.1", self.port)} | changes)

    def leader(self) -> Leader:
        listener = bind("port", "127.0.0.1", self.port)
        listener.listen()
        leader = Leader(self.place(0), "127.0.0.1", listener, self.tls, self._drain, {"dtype": "float32"})
        self._serving = asyncio.create_task(leader.serve())
        return leader

    def member(self, number: int, tls: WireTls | None = None, dtype: str = "float32", **changes: Any) -> Member:
        member = Member(self.place(number, **changes), ("127.0.0.1", self.port), tls or self.tls, {"dtype": dtype})
        self._members.append(member)
        return member

    async def end_leader(self) -> None:
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait([self._serving])

    async def end(self) -> None:
        await self.end_leader()
        for member in self._members:
            await member.close()

    async def _drain(self) -> None:
        self.num_drains += 1


@asynccontextmanager
async def three(tls: WireTls | None) -> AsyncIterator[tuple[Machines, Leader, Member, Member]]:
    """Three machines that have begun."""
    group = Machines(tls)
    try:
        leader, first, second = group.leader(), group.member(1), group.member(2)
        await soon(leader.begin(), first.begin(), second.begin())
        yield group, leader, first, second
    finally:
        await group.end()


async def soon(*work: Awaitable[Any]) -> list[Any]:
    return await asyncio.wait_for(asyncio.gather(*work), 20)


async def test_none_begins_before_all_can_and_all_agree_on_a_start(tls: WireTls) -> None:
    group = Machines(tls)
    try:
        second = group.member(2)
        beginning = [asyncio.create_task(second.begin())]  # before there is anybody to call
        await asyncio.sleep(0.2)
        leader, first = group.leader(), group.member(1)
        beginning.append(asyncio.create_task(leader.begin()))
        await asyncio.sleep(0.8)
        assert not any(task.done() for task in beginning)
        await soon(first.begin(), *beginning)
        assert leader.started == first.started == second.started
        assert leader.started
        assert leader.started.hosts == ("127.0.0.1",) * 3
        assert group.place(1).exchanges(leader.started.hosts) == [f"127.0.0.1:{group.port + 1 + rank}"
                                                                  for rank in range(6)]
    finally:
        await group.end()


@pytest.mark.parametrize("loser", [0, 1])
async def test_all_learn_of_a_loss_and_meet_anew(tls: WireTls, loser: int) -> None:
    async with three(tls) as (_, *nodes):
        before = nodes[0].started
        nodes[loser].end(LostElsewhere("shard 7 was ended by SIGSEGV", is_from_outside=False))
        others = [node for node in nodes if node is not nodes[loser]]
        for found in await soon(*(node.lost for node in others)):
            assert found == LostElsewhere(f"of node {loser}: shard 7 was ended by SIGSEGV", is_from_outside=False)
        for node in others:  # whose shards were killed
            node.end(LostElsewhere("too late to matter"))
        await soon(*(node.begin() for node in nodes))
        assert nodes[0].started == nodes[1].started == nodes[2].started != before
        assert not any(node.lost.done() for node in nodes)


async def test_losses_at_once_are_one(tls: WireTls) -> None:
    async with three(tls) as (_, *nodes):
        for node in nodes:
            node.end(LostElsewhere("a shard died"))
        await soon(*(node.begin() for node in nodes))
        await asyncio.sleep(0.3)
        assert not any(node.lost.done() for node in nodes)


async def test_a_launcher_that_dies_is_waited_for(tls: WireTls) -> None:
    async with three(tls) as (group, leader, first, second):
        await second.close()
        found = await soon(leader.lost, first.lost)
        assert {each.what for each in found} == {"of node 2: its launcher does not answer"}
        for node in (leader, first):
            node.end(LostElsewhere("their end"))
        await soon(leader.begin(), first.begin(), group.member(2).begin())


async def test_a_rank_that_two_machines_have_is_told(tls: WireTls, caplog: pytest.LogCaptureFixture) -> None:
    async with three(tls) as (group, leader, _, second):
        beginning = asyncio.create_task(group.member(2).begin())
        assert {each.what for each in await soon(leader.lost, second.lost)} >= {
            "of node 2: its launcher was started again"}
        beginning.cancel()
        await asyncio.wait([beginning])
    assert "Node 2 calls again, from 127.0.0.1, and its connection from 127.0.0.1 ends: if they are two" in caplog.text


async def test_a_first_machine_that_dies_is_waited_for(tls: WireTls) -> None:
    async with three(tls) as (group, _, first, second):
        await group.end_leader()
        assert {each.what for each in await soon(first.lost, second.lost)} == {
            "of node 0: its launcher does not answer"}
        await soon(first.begin(), second.begin(), group.leader().begin())


async def test_silence_is_a_loss(tls: WireTls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_link, "LOST_SECONDS", 0.8)
    async with three(tls) as (_, leader, first, second):
        assert second._link is not None
        second._link._beating.cancel()
        assert (await soon(leader.lost))[0].what == "of node 2: its launcher does not answer"
        assert (await soon(first.lost))[0].what == "of node 2: its launcher does not answer"


async def test_progress_reaches_all_others(tls: WireTls) -> None:
    async with three(tls) as (_, *nodes):
        heard = [asyncio.Event() for _ in nodes]
        for node, event in zip(nodes, heard, strict=True):
            node.on_progress = event.set
        nodes[1].note_progress()
        await soon(heard[0].wait(), heard[2].wait())
        assert not heard[1].is_set()
        nodes[0].note_progress()
        await soon(heard[1].wait())


async def test_one_that_is_to_end_has_the_group_drain(tls: WireTls) -> None:
    async with three(tls) as (group, _, first, second):
        await soon(first.drain(), second.drain())
        assert group.num_drains in (1, 2)
        await group.end_leader()
        await soon(second.drain())  # there is nobody to ask


async def test_a_drain_is_waited_for_on_a_connection_that_is_not_the_first(
    tls: WireTls, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with three(tls) as (group, _, first, second):
        await group.end_leader()
        leader = group.leader()
        await soon(leader.begin(), first.begin(), second.begin())
        is_empty = asyncio.Event()
        monkeypatch.setattr(leader, "_on_drain", is_empty.wait)
        draining = asyncio.create_task(first.drain())
        await asyncio.sleep(0.3)
        assert not draining.done()
        is_empty.set()
        await soon(draining)


async def test_certificates_that_are_being_renewed_are_waited_for(tls: WireTls, ca: Authority, tmp_path: Path) -> None:
    other = ca.issue("other")
    mixed = WireTls(tls.ca, tmp_path / "cert", tmp_path / "key")
    group = Machines(tls)
    try:
        leader, first, second = group.leader(), group.member(1, tls=mixed), group.member(2)
        beginning = [asyncio.create_task(node.begin()) for node in (leader, first, second)]
        await asyncio.sleep(0.2)  # there are none
        mixed.key.write_bytes(other.key.read_bytes())
        mixed.cert.write_bytes(tls.cert.read_bytes())
        await asyncio.sleep(0.6)  # they do not belong together
        assert not any(task.done() for task in beginning)
        mixed.key.write_bytes(tls.key.read_bytes())
        await soon(*beginning)
    finally:
        await group.end()


@pytest.mark.parametrize(("number", "changes", "why"), [
    (1, {"num_shards": 3}, "num_shards is 3 there and 6 here"), (1, {"name": "h"}, "group is 'h' there and 'g' here"),
    (1, {"nnodes": 2}, "nnodes is 2 there and 3 here"), (1, {"dtype": "bfloat16"}, "dtype is 'bfloat16' there"),
    (3, {}, "node_rank is 3 there, the others of node 0 are 1 to 2"),
    (0, {}, "node_rank is 0 there")])
async def test_who_does_not_belong_to_the_group_is_told(
    tls: WireTls, number: int, changes: dict[str, Any], why: str
) -> None:
    group = Machines(tls)
    try:
        group.leader()
        with pytest.raises(InvalidArgument) as error:
            await soon(group.member(number, **changes).begin())
        assert why in error.value.message
    finally:
        await group.end()


async def test_the_end_of_the_first_machine_ends_connections_that_said_nothing_too() -> None:
    group = Machines(None)
    try:
        group.leader()
        reader, writer = await asyncio.open_connection("127.0.0.1", group.port)
        assert await reader.readline() == b'{"kind": "beat"}\n'
        await group.end_leader()
        await soon(reader.read())  # to the connection's end
        writer.close()
        await writer.wait_closed()
    finally:
        await group.end()


async def test_strangers_are_not_let_in(tls: WireTls, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    group = Machines(tls)
    try:
        leader = group.leader()
        stranger = authority(tmp_path / "other").issue("node")
        strangers = [WireTls(tls.ca, stranger.cert, stranger.key), WireTls(stranger.ca, tls.cert, tls.key)]
        waiting = [asyncio.create_task(group.member(1, tls=each).begin()) for each in strangers]
        waiting.append(asyncio.create_task(leader.begin()))
        _, writer = await asyncio.open_connection("127.0.0.1", group.port)
        writer.write(b'{"kind": "hello"}\n')
        await asyncio.sleep(1)
        assert not leader._members
        told = [each.getMessage() for each in caplog.records]
        assert len([each for each in told if "its CA may not have signed this machine's certificate" in each]) == 1
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        writer.close()
        await writer.wait_closed()
    finally:
        await group.end()


async def test_a_ca_that_was_replaced_is_trusted_no_more(tls: WireTls, tmp_path: Path) -> None:
    new = authority(tmp_path / "new").issue("node")
    files = WireTls(tmp_path / "ca", tmp_path / "cert", tmp_path / "key")
    group = Machines(files)
    try:
        for ours, then in ((tls, [tls]), (new, [new])):
            for mine, theirs in ((files.ca, ours.ca), (files.cert, ours.cert), (files.key, ours.key)):
                mine.write_bytes(theirs.read_bytes())
            if ours is tls:
                leader = group.leader()
            for number, each in enumerate([tls, new], 1):
                # It believes in any of the two, so that the leader alone decides.
                (tmp_path / f"both-{number}").write_bytes(tls.ca.read_bytes() + new.ca.read_bytes())
                caller = group.member(number, tls=WireTls(tmp_path / f"both-{number}", each.cert, each.key))
                calling = asyncio.create_task(caller.begin())
                await asyncio.sleep(0.3)
                assert (number in leader._members) == (each in then)
                calling.cancel()
                await asyncio.wait([calling])
                await caller.close()
                await asyncio.sleep(0.1)
    finally:
        await group.end()
