"""Keeps the shards of one group running: starts them together, watches them, and restarts all when one is lost."""

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.launcher.nodes import Alone, LostElsewhere, Nodes
from penstock.launcher.processes import BACKOFF_SECONDS, Cause, Process, Program, started_in
from penstock.launcher.progress_watch import ProgressWatch, followed
from penstock.launcher.resting import Rest
from penstock.launcher.shard_memory import ShardMemory
from penstock.launcher.watch import Watch, watched
from penstock.router.fleet.errors import FleetError
from penstock.system.arguments import InvalidArgument
from penstock.system.signs import PEER_LOST
from penstock.system.wire_tls import WireTls

if TYPE_CHECKING:
    from penstock.router.fleet.client import Health

log = logging.getLogger(__name__)

MAX_DEATHS = len(BACKOFF_SECONDS) + 1
"""How many deaths in a row, without a completed step in between, end the group."""
END_SECONDS = 10.0
"""How long the shards may take to end when they are asked to."""
TOLD_SECONDS = 5.0
"""How long another machine's launcher may take to tell that it has lost a shard which those here miss: it counts its
dead first, and a cut wire is noticed after four seconds."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Tells how a group was lost, by the shards that are at fault, or that it could not be started."""

    causes: Sequence[Cause]
    has_stepped: bool
    """Whether the group completed a step: the measurement, after which all shards tell that they are ready. Their own
    signs count, not an answer to a watch, since a request may kill them before the first answer."""
    is_refusal: bool
    """Whether shards ended by themselves before they were ready, because of their settings or the checkpoint, or could
    not be started."""
    is_from_outside: bool
    """Whether the group ran well until somebody killed or stopped a shard. A shard that ended by itself, or by a fault
    of its own such as SIGSEGV, may have written anywhere in its memory."""
    is_elsewhere: bool = False
    """Whether it was another machine that lost its shards."""

    def __str__(self) -> str:
        return ", ".join(map(str, self.causes))


class GroupKeeper:
    """Runs the shards of one group. It restarts all of them together: half a group is of no use, and no shard holds
    anything that can't be had again.

    `programs` makes the programs to run, anew for each start; `targets` are the gRPC addresses of the same shards, in
    the same order. The timeouts are in seconds: the first for a step, the second for a shard that loads and makes no
    progress; `on_progress` is called while one makes some. What the shards have in
    `memories` outlives them, unless they may have spoilt it. `tls` protects the connections to them.
    `nodes` are the other machines that have shards of the group, if there are some. `rest` lets shards that are to end
    rest instead, if it can. One that `is_on_demand` leaves others all memory.
    """

    def __init__(
        self, programs: Callable[[], Sequence[Program]], targets: Sequence[str], step_timeout: float,
        startup_timeout: float, memories: Sequence[ShardMemory] = (), on_progress: Callable[[], None] = lambda: None,
        tls: WireTls | None = None, nodes: Nodes | None = None, rest: Rest | None = None, is_on_demand: bool = False,
    ) -> None:
        self._rest = rest
        self._is_on_demand = is_on_demand
        self._nodes = nodes or Alone()
        self._shards: Sequence[Process] = ()
        self.forgets_drain = False
        """Whether the next start of the shards takes sequences, though the group drains now."""
        self.is_draining = False
        """Whether the shard of the lowest rank here said last that the group drains."""
        self._tls = tls
        self._programs = programs
        self._targets = targets
        self._step_timeout = step_timeout
        self._startup_timeout = startup_timeout
        self._memories = memories
        self._on_progress = on_progress

    @property
    def is_ready(self) -> bool:
        """Whether all shards of this machine run and can take orders."""
        return bool(self._shards) and all(shard.is_ready for shard in self._shards)

    async def keep(self, end: asyncio.Future[None]) -> Loss | None:
        """Runs the shards until `end` is done; then none is left. Returns the last loss if to go on is of no use."""
        num_deaths = 0
        is_first = True
        while (loss := await self._live(end)) is not None:
            if not loss.is_elsewhere:  # what dies there is the launcher's there to give up
                num_deaths = 0 if loss.has_stepped else num_deaths + 1
            if is_first and loss.is_refusal:
                return loss
            if num_deaths == MAX_DEATHS:
                log.error("The shards died %d times in a row without a completed step", MAX_DEATHS)
                return loss
            log.warning("%s, starting all shards again", loss)
            if not loss.is_from_outside:
                self._discard()
            is_first = False
            await asyncio.wait([end], timeout=BACKOFF_SECONDS[max(0, num_deaths - 1)])
            if end.done():
                break
        if self._is_on_demand:
            self._discard()
        return None

    def _discard(self) -> None:
        for memory in self._memories:
            memory.discard()

    async def _live(self, end: asyncio.Future[None]) -> Loss | None:
        """Runs all shards once, together with those of other machines. Returns how they were lost, or None after they
        ended in order."""
        beginning = asyncio.ensure_future(self._nodes.begin())
        ends: list[asyncio.Future[Any]] = [beginning, end]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not beginning.done():
            beginning.cancel()
            await asyncio.wait([beginning])
            return None
        how = LostElsewhere("its launcher ends")
        try:
            beginning.result()
            loss = await self._run(end, self._nodes)
            how = how if loss is None else LostElsewhere(str(loss), loss.is_from_outside)
            return loss
        except (InvalidArgument, FleetError) as error:  # the latter if certificates are being renewed just now
            return _failed_start(error)
        finally:
            self._shards = ()
            self._nodes.end(how)

    async def _run(self, end: asyncio.Future[None], nodes: Nodes) -> Loss | None:
        loss = None
        if self.forgets_drain:
            self.forgets_drain = self.is_draining = False
        async with AsyncExitStack() as stack:
            woken = await self._rest.end(stack) if self._rest is not None else ()
            try:
                shards = woken or [await started_in(stack, program) for program in self._programs()]
            except (OSError, InvalidArgument) as error:
                # What hinders a start may be over soon, and if not, the router has to tell its clients.
                return _failed_start(error)
            watching = await stack.enter_async_context(AsyncExitStack())
            watches = [await watching.enter_async_context(
                watched(target, self._step_timeout, partial(getattr, shard, "is_ready"), self._tls,
                        partial(self._note_health, target)))
                for shard, target in zip(shards, self._targets, strict=True)]
            loads: list[ProgressWatch] = []
            for shard in shards:
                loads.append(await watching.enter_async_context(followed(
                    shard, self._startup_timeout, on_sign=partial(self._note_progress, loads))))
            nodes.on_progress = partial(_forget_silence, loads)
            self._shards = shards
            stack.callback(_kill, shards)
            ends = [shard.ended for shard in shards]
            hung = [watch.hung for watch in watches] + [load.is_over for load in loads]
            events: list[asyncio.Future[Any]] = [end, *ends, *hung, nodes.lost]
            await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
            if nodes.started is not None and any(shard.status == PEER_LOST for shard in shards):
                # Its launcher tells of the one that they have lost, once it knows how.
                told: list[asyncio.Future[Any]] = [end, nodes.lost]
                await asyncio.wait(told, timeout=TOLD_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not end.done():
                loss = _loss(shards, watches, loads, nodes.lost)
            else:
                await watching.aclose()  # gRPC would report on stderr that the shards close its connections
                if self._rest is not None and await self._rest.begin(shards, stack):
                    return None
                for shard in shards:
                    shard.send_signal(signal.SIGTERM)
                await asyncio.wait(ends, timeout=END_SECONDS)
        # Only now is it known how each shard ended: one may have crashed whose end was not the first to be noticed.
        has_crash = any(shard.status is not None and shard.status < 0 and shard.status != -signal.SIGKILL
                        for shard in shards)
        return loss and replace(loss, is_from_outside=loss.is_from_outside and not has_crash,
                                is_refusal=loss.is_refusal and not woken)  # those that are started now may do better

    def _note_health(self, target: str, health: "Health") -> None:
        if target == self._targets[0]:
            self.is_draining = health.is_draining

    def _note_progress(self, loads: Sequence[ProgressWatch]) -> None:
        """Takes a sign of one shard for all, since those that have loaded their part wait for the others."""
        _forget_silence(loads)
        self._nodes.note_progress()
        self._on_progress()


def _forget_silence(loads: Sequence[ProgressWatch]) -> None:
    for load in loads:
        load.seconds = 0.0


def _failed_start(error: OSError | InvalidArgument | FleetError) -> Loss:
    return Loss(causes=[Cause.of_failed_start("the group", error)], has_stepped=False,
                is_refusal=not isinstance(error, FleetError), is_from_outside=False)


def _kill(shards: Sequence[Process]) -> None:
    """Kills the shards all at once, so that none gets to complain about the others' end."""
    for shard in shards:
        shard.kill()


def _loss(
    shards: Sequence[Process], watches: Sequence[Watch], loads: Sequence[ProgressWatch],
    elsewhere: "asyncio.Future[LostElsewhere]",
) -> Loss:
    """Makes the loss of the shards that are dead, or if none is, of those that hang or do not answer, or of those that
    were lost on another machine."""
    for watch in watches:
        if watch.hung.done():
            watch.hung.result()
    dead = [Cause(shard.name, shard.ending, shard) for shard in shards if shard.status is not None]
    at_fault = [shard for shard in shards if shard.status not in (None, PEER_LOST)]
    if elsewhere.done() and not any(shard.status is not None and shard.status < 0 for shard in shards):
        # Those here may have ended since those there are gone.
        are_ready = all(shard.is_ready for shard in shards)
        return Loss(causes=[Cause("shards", elsewhere.result().what)], has_stepped=are_ready, is_refusal=False,
                    is_from_outside=are_ready and elsewhere.result().is_from_outside, is_elsewhere=True)
    return Loss(
        causes=dead or [Cause(shard.name, finding, shard) for shard, watch, load
                        in zip(shards, watches, loads, strict=True) if (finding := watch.finding or load.finding)],
        has_stepped=all(shard.is_ready for shard in shards),
        is_refusal=bool(at_fault) and all(
            shard.status is not None and shard.status > 0 and not shard.is_ready for shard in at_fault),
        is_from_outside=all(shard.is_ready and shard.status in (None, -signal.SIGKILL) for shard in shards))
