"""Watches a shard: asks twice a second whether it answers, whether its steps end, and whether it can be reached."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.router.fleet.errors import FleetError
from penstock.system import child_environment
from penstock.system.wire_tls import WireTls

if TYPE_CHECKING:
    from penstock.router.fleet.client import Health, ShardClient

POLL_SECONDS = 0.5
CALL_SECONDS = 2.0
"""How long an answer may take. A shard answers within milliseconds, also while a step runs."""


class Watch:
    """Follows one shard's health; `watched` makes it. The shard counts as hanging once a step or a silence has lasted
    for more than `step_timeout` seconds, or once nobody can connect to it any more because the file of its `socket`
    was removed. Nobody may have to: a router that is connected needs no file, but the next one does.

    Times are sums of the intervals between two looks, none counted as longer than looks should be apart. So a launcher
    that was stopped, or a machine or container that was suspended, makes no shard look as if it hung: afterwards each
    has all the time left that it had before.
    """

    def __init__(
        self, client: "ShardClient", step_timeout: float, socket: Path | None = None,
        is_ready: Callable[[], bool] = lambda: False, on_health: Callable[["Health"], None] = lambda health: None,
    ) -> None:
        self._on_health = on_health
        self._step_timeout = step_timeout
        self._socket = socket
        self._is_ready = is_ready
        self._has_lost_socket = False
        self._had_listened = False
        self._last: Health | None = None
        self._silence = 0.0
        self._in_step = 0.0
        self.hung = asyncio.create_task(self._poll(client))
        """The task that is done when the shard hangs."""

    @property
    def has_listened(self) -> bool:
        """Whether the shard has answered at least once, or has told that it is ready; before that it loads its model,
        however long that takes."""
        return self._last is not None or self._is_ready()

    @property
    def is_hung(self) -> bool:
        return self._has_lost_socket or max(self._silence, self._in_step) > self._step_timeout

    @property
    def finding(self) -> str:
        """Tells for how long the shard has been silent or in a step, or that its socket is gone; empty if there is
        nothing to tell."""
        if self._has_lost_socket:
            return "has lost its socket, for the file was removed"
        if self._silence:
            return f"has not answered for {self._silence:.1f} s"
        if self._last and self._in_step:
            return f"has been in step {self._last.steps_begun} for {self._in_step:.1f} s"
        return ""

    def look(self, health: "Health | None", seconds: float) -> None:
        """Takes an answer, or None if there was none, `seconds` after the look before."""
        seconds = min(seconds, POLL_SECONDS + CALL_SECONDS)
        had_listened, self._had_listened = self._had_listened, self.has_listened or health is not None
        if health is None:
            self._silence += seconds if had_listened else 0.0
            return
        is_same_step = self._last is not None and self._last.steps_begun == health.steps_begun
        so_far = self._in_step if is_same_step else 0.0
        self._in_step = min(so_far + seconds, health.began_seconds_ago) if health.is_in_step else 0.0
        self._silence = 0.0
        self._last = health

    async def _poll(self, client: "ShardClient") -> None:
        last = time.monotonic()
        while True:
            try:
                health = await client.health(CALL_SECONDS)
                self._on_health(health)
            except FleetError:
                health = None
            now = time.monotonic()
            self.look(health, now - last)
            if self._socket is not None:
                is_there = health is not None or (self._last is None and self.has_listened)
                self._has_lost_socket = is_there and not self._socket.exists()
            if self.is_hung:
                return
            last = now
            await asyncio.sleep(POLL_SECONDS)


@asynccontextmanager
async def watched(
    target: str, step_timeout: float, is_ready: Callable[[], bool] = lambda: False, tls: WireTls | None = None,
    on_health: Callable[["Health"], None] = lambda health: None,
) -> AsyncIterator[Watch]:
    """Watches the shard at a gRPC address while the block runs. `is_ready` tells whether it has said that it listens:
    it may hang, or its socket be gone, before it is first asked. `on_health` is called with what it answers."""
    child_environment.prepare_grpc()
    # Not at the top, where the import of gRPC would delay the answer to `--help`.
    from penstock.router.fleet.client import ShardClient

    client = ShardClient(target, tls)
    socket = Path(target.removeprefix("unix:")) if target.startswith("unix:") else None
    watch = Watch(client, step_timeout, socket, is_ready, on_health)
    try:
        yield watch
    finally:
        watch.hung.cancel()
        await asyncio.wait([watch.hung])
        await client.close()
