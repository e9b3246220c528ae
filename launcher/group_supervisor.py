"""Keeps the shards of a group without a router running until they are to end, once routers have left it."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from penstock.launcher.group import GroupKeeper
from penstock.launcher.supervisor import UntilSignal, background, give_up
from penstock.router.fleet.errors import FleetError
from penstock.system import child_environment
from penstock.system.wire_tls import WireTls

if TYPE_CHECKING:
    from penstock.router.fleet.client import ShardClient

log = logging.getLogger(__name__)

QUIET_SECONDS = 1.0
"""How long a group that drains must have begun no step until it counts as empty: a router hears of it at once, moves
its sequences, and then has nothing more to send."""
POLL_SECONDS, CALL_SECONDS = 0.1, 2.0


class GroupSupervisor(UntilSignal):
    """Runs a group's shards until SIGTERM, SIGINT or a loss that can't be mended; before they end in order, `drain` has
    routers leave the group."""

    def __init__(self, group: GroupKeeper, drain: Callable[[], Coroutine[Any, Any, None]]) -> None:
        super().__init__("routers have moved what runs to other groups")
        self._group = group
        self._drain = drain

    async def _run(self) -> int:
        drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        async with background(self._group.keep(drained)) as keeping:
            ends: list[asyncio.Future[Any]] = [keeping, self._stop]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not keeping.done() and self._group.is_ready:
                async with background(self._drain()) as draining:
                    ends = [keeping, draining]
                    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            drained.set_result(None)
            loss = await keeping
            return 0 if loss is None else give_up(loss.causes, loss.is_refusal)


async def drain(target: str, tls: WireTls | None, seconds: float) -> None:
    """Has a group drain and waits until it is empty, for so many seconds at most, or until it can't be asked."""
    child_environment.quiet()
    # Not at the top, where the import of gRPC would delay the answer to `--help`.
    from penstock.router.fleet.client import ShardClient

    try:
        client = ShardClient(target, tls)
        try:
            await client.drain(True)
            await asyncio.wait_for(until_empty(client), seconds)
        finally:
            await client.close()
    except TimeoutError:
        log.warning("the group still computes after %g s, for which it was waited", seconds)
    except FleetError as error:
        log.info("the group is not drained: %s", error)


async def until_empty(client: "ShardClient") -> None:
    """Waits until a group that drains has nothing to compute. Raises FleetError if it can't be asked."""
    since = time.monotonic()
    while True:
        health = await client.health(CALL_SECONDS)
        quiet = min(health.ended_seconds_ago, time.monotonic() - since)
        if not health.has_stream or (not health.is_in_step and quiet > QUIET_SECONDS):
            return
        await asyncio.sleep(POLL_SECONDS)
