"""Watches a process that tells of its progress: finds the one that no longer does."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from penstock.launcher.processes import Process

POLL_SECONDS = 0.5


class ProgressWatch:
    """Follows the signs of one process; `followed` makes it.

    Times are sums of intervals, as `Watch` has them, so that a machine that was suspended makes no process silent.
    """

    def __init__(
        self, process: Process, start_limit: float, limit: float | None, on_sign: Callable[[], None]
    ) -> None:
        self._process = process
        self._start_limit = start_limit
        self._limit = float("inf") if limit is None else limit
        self._on_sign = on_sign
        self.seconds = 0.0
        self.is_over: asyncio.Task[None] = asyncio.create_task(self._poll())
        """The task that is done when the silence has lasted for longer than the limit."""

    @property
    def is_too_long(self) -> bool:
        return self.seconds > (self._limit if self._process.is_ready else self._start_limit)

    @property
    def finding(self) -> str:
        """Tells for how long the process has been silent; empty if it has not been for too long."""
        doing = "given no sign of life" if self._process.is_ready else "made no progress in loading"
        return f"has {doing} for {self.seconds:.1f} s" if self.is_too_long else ""

    async def _poll(self) -> None:
        num_signs, last = self._process.num_signs, time.monotonic()
        while not self.is_too_long:
            await asyncio.sleep(POLL_SECONDS)
            now = time.monotonic()
            if self._process.num_signs != num_signs:
                num_signs, self.seconds = self._process.num_signs, 0.0
                self._on_sign()
            else:
                self.seconds += min(now - last, 2 * POLL_SECONDS)
            last = now


@asynccontextmanager
async def followed(
    process: Process, start_limit: float, limit: float | None = None, on_sign: Callable[[], None] = lambda: None
) -> AsyncIterator[ProgressWatch]:
    """Follows a process while the block runs. It may be silent for `start_limit` seconds until it is ready, since it
    loads; then for `limit`, or for ever. `on_sign` is called for the signs that came."""
    watch = ProgressWatch(process, start_limit, limit, on_sign)
    try:
        yield watch
    finally:
        watch.is_over.cancel()
        await asyncio.wait([watch.is_over])
