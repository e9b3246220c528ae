"""A machine of a group other than the first one, which it calls and then follows."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from penstock.launcher.group_place import GroupPlace
from penstock.launcher.node_link import Message, NodeLink
from penstock.launcher.nodes import LostElsewhere, Start
from penstock.system import addresses
from penstock.system.arguments import InvalidArgument
from penstock.system.wire_tls import WireTls

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.5


class Member:
    """A machine that follows the one at `leader`, a host and a port. `settings` are those that all machines of the
    group must share."""

    def __init__(
        self, place: GroupPlace, leader: tuple[str, int], tls: WireTls | None, settings: Mapping[str, object],
    ) -> None:
        self.lost: asyncio.Future[LostElsewhere] = asyncio.get_running_loop().create_future()
        self.on_progress: Callable[[], None] = lambda: None
        self.started: Start | None = None
        self._place = place
        self._leader = leader
        self._tls = tls
        self._settings = settings
        self._is_told = False
        """Whether it was logged that the first machine lets this one not in."""
        self._link: NodeLink | None = None
        self._following: asyncio.Task[None] | None = None
        self._start: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """Whether the shards start; not if the connection is lost before."""
        self._drained = asyncio.Event()
        self._generation = ""

    async def begin(self) -> None:
        self.lost = asyncio.get_running_loop().create_future()
        while True:
            self._start = asyncio.get_running_loop().create_future()
            if self._link is None:
                self._link = await self._call()
                self._following = asyncio.create_task(self._follow(self._link))
            self._link.send("ready")
            if await self._start:
                return

    def end(self, how: LostElsewhere) -> None:
        generation, self._generation = self._generation, ""
        if generation and self._link is not None:
            self._link.send("lost", what=how.what, is_from_outside=how.is_from_outside, generation=generation)

    def note_progress(self) -> None:
        if self._link is not None:
            self._link.send("progress")

    async def drain(self) -> None:
        """Has the group drain; returns when it is empty, or the first machine can't be asked."""
        if self._link is not None:
            self._drained.clear()  # it is set by each connection that ended
            self._link.send("drain")
            await self._drained.wait()

    async def close(self) -> None:
        """Leaves the group."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])

    async def _call(self) -> NodeLink:
        """Connects to the first machine, which may not be there for long."""
        where, last = addresses.joined(*self._leader), ""
        while True:
            try:
                link = await NodeLink.called(self._leader, self._tls)
            except (OSError, ValueError) as error:  # the files, too, which may be being renewed, can't be used
                if str(error) != last:
                    last = str(error)
                    log.info("Waiting for node 0 of %d at %s (%s)", self._place.nnodes, where,
                             last or "it does not answer")
                await asyncio.sleep(RETRY_SECONDS)
                continue
            place = self._place
            link.send("hello", group=place.name, nnodes=place.nnodes, node_rank=place.node_rank,
                      num_shards=place.num_shards, host=link.own_host, **self._settings)
            return link

    async def _follow(self, link: NodeLink) -> None:
        try:
            while (message := await link.receive()) is not None:
                self._hear(message)
            await self._left(link)
        finally:
            await link.end()

    async def _left(self, link: NodeLink) -> None:
        """Takes note that the connection is lost."""
        if not link.has_heard and not self._is_told:
            self._is_told = True
            log.warning("Node 0 of %d at %s ends the connection at once%s", self._place.nnodes,
                        addresses.joined(*self._leader), "" if self._tls is None else
                        ": its CA may not have signed this machine's certificate, or that has expired")
        self._link = None
        self._drained.set()
        self._lose(LostElsewhere("of node 0: its launcher does not answer"))
        if not self._start.done():
            await asyncio.sleep(RETRY_SECONDS)  # one that lets nobody in closes each connection at once
        if not self._start.done():
            self._start.set_result(False)

    def _hear(self, message: Message) -> None:
        match message["kind"]:
            case "start":
                if not self._start.done():
                    # Before anything else is heard: the start may be lost again at once.
                    self.started = Start(message["generation"], tuple(message["hosts"]))
                    self._generation = self.started.generation
                    self._start.set_result(True)
            case "lost" if message["generation"] == self._generation:
                self._lose(LostElsewhere(message["what"], message["is_from_outside"]))
            case "progress":
                self.on_progress()
            case "drained":
                self._drained.set()
            case "refused":
                if not self._start.done():
                    self._start.set_exception(InvalidArgument(
                        f"node 0 of the group at {addresses.joined(*self._leader)} refuses this one: {message['why']}"))

    def _lose(self, how: LostElsewhere) -> None:
        if self._generation:
            self._generation = ""
            self.lost.set_result(how)
