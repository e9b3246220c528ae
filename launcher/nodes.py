"""The machines of one group, as each of their launchers sees them: none starts shards before all can, and when one
loses a shard all start again."""

import asyncio
import logging
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from penstock.launcher.group_place import GroupPlace
from penstock.launcher.node_link import Message, NodeLink
from penstock.system.wire_tls import WireTls

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.5
"""After how long the next call is taken if none can be, as when too many files are open."""


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a group: `generation` is a name that no other has, `hosts` are its machines, in their order."""

    generation: str
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LostElsewhere:
    """Tells how another machine lost its shards, and whether it was none of their own doing, as when somebody killed
    them: otherwise what they had sent may have been wrong."""

    what: str
    is_from_outside: bool = True


class Nodes(Protocol):
    """Keeps the machines of a group in step."""

    lost: "asyncio.Future[LostElsewhere]"
    """Is done when another machine's shards are lost since the last `begin`; tells what happened there."""
    on_progress: Callable[[], None]
    """Is called while another machine's shards make progress in loading."""
    started: Start | None
    """The start that the last `begin` agreed on with the others; None on a single machine."""

    async def begin(self) -> None:
        """Waits until the shards of no machine run any more and all of them can start. Raises InvalidArgument if this
        machine does not belong to the group."""

    def end(self, how: LostElsewhere) -> None:
        """Tells the others that the shards of this machine, which `begin` let start, have ended, and how."""

    def note_progress(self) -> None:
        """Tells the others that the shards of this machine make progress in loading."""


class Alone:
    """The one machine of a group."""

    def __init__(self) -> None:
        self.lost: asyncio.Future[LostElsewhere]
        self.on_progress: Callable[[], None] = lambda: None
        self.started: Start | None = None

    async def begin(self) -> None:
        self.lost = asyncio.get_running_loop().create_future()

    def end(self, how: LostElsewhere) -> None: ...

    def note_progress(self) -> None: ...


@dataclass(slots=True)
class _Member:
    link: NodeLink
    host: str
    is_ready: bool = False


class Leader:
    """The first machine of several, which the others call at `listener`, a socket that listens. `on_drain` has the
    group drain, because one of the others is to end. `settings` are those that all machines must share."""

    def __init__(
        self, place: GroupPlace, host: str, listener: socket.socket, tls: WireTls | None,
        on_drain: Callable[[], Awaitable[None]], settings: Mapping[str, object],
    ) -> None:
        self.lost: asyncio.Future[LostElsewhere] = asyncio.get_running_loop().create_future()
        self.on_progress: Callable[[], None] = lambda: None
        self.started: Start | None = None
        self._place = place
        self._host = host
        self._listener = listener
        self._tls = tls
        self._on_drain = on_drain
        self._settings = settings
        self._draining: asyncio.Task[None] | None = None
        self._leaving: list[NodeLink] = []
        """Whom to tell when the group has drained."""
        self._members: dict[int, _Member] = {}
        self._taking: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._generation = ""
        """Names the start whose shards run everywhere; empty while there is none."""

    async def serve(self) -> None:
        """Answers the others until it is cancelled."""
        self._listener.setblocking(False)
        try:
            while True:
                try:
                    caller, _ = await asyncio.get_running_loop().sock_accept(self._listener)
                except OSError as error:
                    log.warning("Cannot take a call of another node: %s", error)
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                task = asyncio.create_task(self._take(caller))
                self._taking.add(task)
                task.add_done_callback(partial(self._taken, caller))
        finally:
            self._listener.close()
            for task in self._taking:
                task.cancel()
            await asyncio.gather(*self._taking, return_exceptions=True)

    async def begin(self) -> None:
        self.lost = asyncio.get_running_loop().create_future()
        told: set[int] = set()
        while missing := {*range(1, self._place.nnodes)} - {
                number for number, member in self._members.items() if member.is_ready}:
            if told != missing:
                told = missing
                log.info("Waiting for node %s of %d", ", ".join(map(str, sorted(missing))), self._place.nnodes)
            self._changed.clear()
            await self._changed.wait()
        hosts = (self._host, *(self._members[number].host for number in range(1, self._place.nnodes)))
        self._generation = secrets.token_hex(8)
        for member in self._members.values():
            member.is_ready = False
            member.link.send("start", generation=self._generation, hosts=hosts)
        self.started = Start(self._generation, hosts)

    def end(self, how: LostElsewhere) -> None:
        self._tell_lost(f"of node 0: {how.what}", how.is_from_outside)

    def note_progress(self) -> None:
        self._tell_others(-1, "progress")

    def _taken(self, caller: socket.socket, task: asyncio.Task[None]) -> None:
        self._taking.discard(task)
        caller.close()  # a task that is cancelled before it begins has closed nothing

    async def _take(self, caller: socket.socket) -> None:
        try:
            link = await NodeLink.answered(caller, self._tls)
        except (OSError, ValueError) as error:  # the files, too, which may be being renewed, can't be used
            log.debug("A call of another node fails: %s", error)
            return
        try:
            if (hello := await link.receive()) is not None:
                await self._follow(link, hello)
        finally:
            await link.end()

    async def _follow(self, link: NodeLink, hello: Message) -> None:
        number = hello.get("node_rank")
        if refusal := _refusal(self._place, self._settings, hello):
            log.warning("Node %s of %s is refused: %s", number, hello.get("group"), refusal)
            link.send("refused", why=refusal)
            return
        assert isinstance(number, int)
        if before := self._members.pop(number, None):
            log.warning("Node %d calls again, from %s, and its connection from %s ends: if they are two machines, each "
                        "needs a --node-rank of its own", number, hello["host"], before.host)
            before.link.close()
            self._lose(number, LostElsewhere("its launcher was started again"))
        member = self._members[number] = _Member(link, hello["host"])
        while (message := await link.receive()) is not None:
            self._hear(number, member, message)
        if self._members.get(number) is member:
            del self._members[number]
            self._lose(number, LostElsewhere("its launcher does not answer"))

    def _hear(self, number: int, member: _Member, message: Message) -> None:
        match message["kind"]:
            case "ready":
                member.is_ready = True
                self._changed.set()
            case "lost" if message["generation"] == self._generation:
                self._lose(number, LostElsewhere(message["what"], message["is_from_outside"]))
            case "progress":
                self.on_progress()
                self._tell_others(number, "progress")
            case "drain":
                log.info("Node %d is to end, so the group drains", number)
                self._leaving.append(member.link)
                if self._draining is None or self._draining.done():
                    self._draining = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        await self._on_drain()
        for link in self._leaving:
            link.send("drained")
        self._leaving.clear()

    def _lose(self, number: int, how: LostElsewhere) -> None:
        """Takes note that the shards of another machine are lost, if the group runs."""
        if self._generation:
            what = f"of node {number}: {how.what}"
            self._tell_lost(what, how.is_from_outside)
            self.lost.set_result(LostElsewhere(what, how.is_from_outside))

    def _tell_lost(self, what: str, is_from_outside: bool) -> None:
        generation, self._generation = self._generation, ""
        if generation:
            self._tell_others(-1, "lost", what=what, is_from_outside=is_from_outside, generation=generation)

    def _tell_others(self, number: int, kind: str, **content: Any) -> None:
        for other, member in self._members.items():
            if other != number:
                member.link.send(kind, **content)


def _refusal(place: GroupPlace, settings: Mapping[str, object], hello: Message) -> str:
    """Tells why a launcher does not belong to the group; empty if it does."""
    expected = {"group": place.name, "nnodes": place.nnodes, "num_shards": place.num_shards, **settings}
    if different := [f"{name} is {hello.get(name)!r} there and {value!r} here" for name, value in expected.items()
                     if hello.get(name) != value]:
        return ", ".join(different)
    number = hello.get("node_rank")
    if not isinstance(number, int) or not 1 <= number < place.nnodes:
        return f"node_rank is {number!r} there, the others of node 0 are 1 to {place.nnodes - 1}"
    return "" if isinstance(hello.get("host"), str) else "it names no host"
