"""Keeps the shards of one group running: started together, watched, and when one is lost all are started again."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from penstock.router.launcher.processes import BACKOFF_SECONDS, Process, Program, started
from penstock.router.launcher.watch import Watch, watched

log = logging.getLogger(__name__)

MAX_DEATHS = len(BACKOFF_SECONDS) + 1
"""In a row, without a completed step in between."""
END_SECONDS = 10.0
"""How long the shards may take to end when asked to."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What became of the shards that a group was lost by."""

    causes: Sequence[tuple[Process, str]]
    has_stepped: bool
    """Whether the group completed a step: the measurement, after which all shards tell that they are ready. Their word
    counts, not an answer to a watch: a request may kill them before the first."""
    is_refusal: bool
    """Shards ended by themselves before they were ready: their settings or the checkpoint are at fault."""

    def __str__(self) -> str:
        return ", ".join(f"{process.name} {what}" for process, what in self.causes)


class Group:
    """The shards of one group. Half a group is of no use, and no shard holds anything that can't be had again.

    `programs` gives what to run, anew for each start; `targets` are the gRPC addresses of the same shards, in the same
    order; `step_timeout` is in seconds.
    """

    def __init__(self, programs: Callable[[], Sequence[Program]], targets: Sequence[str], step_timeout: float) -> None:
        self._programs = programs
        self._targets = targets
        self._step_timeout = step_timeout

    async def keep(self, end: asyncio.Future[None]) -> Loss | None:
        """Run the shards until `end` is done; then none is left. Returns the last loss if it is of no use to go on."""
        num_deaths = 0
        is_first = True
        while (loss := await self._live(end)) is not None:
            num_deaths = 0 if loss.has_stepped else num_deaths + 1
            if is_first and loss.is_refusal:
                return loss
            if num_deaths == MAX_DEATHS:
                log.error("The shards died %d times in a row without a completed step", MAX_DEATHS)
                return loss
            log.warning("%s, starting all shards again", loss)
            is_first = False
            await asyncio.wait([end], timeout=BACKOFF_SECONDS[max(0, num_deaths - 1)])
            if end.done():
                return None
        return None

    async def _live(self, end: asyncio.Future[None]) -> Loss | None:
        """One life of all shards, to its loss or to its end in order."""
        async with AsyncExitStack() as stack:
            shards = [await stack.enter_async_context(started(program)) for program in self._programs()]
            watching = await stack.enter_async_context(AsyncExitStack())
            watches = [await watching.enter_async_context(watched(target, self._step_timeout))
                       for target in self._targets]
            stack.callback(_kill, shards)
            ends = [shard.ended for shard in shards]
            await asyncio.wait([end, *ends, *(watch.hung for watch in watches)], return_when=asyncio.FIRST_COMPLETED)
            if not end.done():
                return _loss(shards, watches)
            await watching.aclose()  # gRPC would report on stderr that the shards close its connections
            for shard in shards:
                shard.terminate()
            await asyncio.wait(ends, timeout=END_SECONDS)
            return None


def _kill(shards: Sequence[Process]) -> None:
    """All at once, so that none gets to complain about the others' end."""
    for shard in shards:
        shard.kill()


def _loss(shards: Sequence[Process], watches: Sequence[Watch]) -> Loss:
    """Of the dead, or of those that are in trouble where one hangs."""
    for watch in watches:
        if watch.hung.done():
            watch.hung.result()
    dead = [(shard, shard.ending) for shard in shards if shard.status is not None]
    return Loss(
        causes=dead or [(shard, watch.finding) for shard, watch in zip(shards, watches, strict=True) if watch.finding],
        has_stepped=all(shard.is_ready for shard in shards),
        is_refusal=bool(dead) and all(
            shard.status > 0 and not shard.is_ready for shard in shards if shard.status is not None))
