"""Has routers leave a group, and waits until it has nothing to compute."""

import asyncio
import logging
import time
from typing import TYPE_CHECKING

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


async def drain(target: str, tls: WireTls | None, seconds: float) -> None:
    """Has a group drain and waits until it is empty, for so many seconds at most, or until it can't be asked."""
    child_environment.prepare_grpc()
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
