"""Watches a process that tells of its progress: finds the one that no longer does."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from penstock.router.launcher.processes import Process

POLL_SECONDS = 0.5


class Silence:
    """Follows the signs of one process, until it is ready if `is_for_start`; `followed` makes it.

    Times are sums of intervals, as `Watch` has them, so that a machine that was suspended makes no process silent.
    """

    def __init__(
        self, process: Process, limit: float, start_limit: float, is_for_start: bool, on_sign: Callable[[], None]
    ) -> None:
        self._process = process
        self._later_limit = limit
        self._start_limit = start_limit
        self._is_for_start = is_for_start
        self._on_sign = on_sign
        self.seconds = 0.0
        self.is_over: asyncio.Task[None] = asyncio.create_task(self._poll())
        """The task that is done when the silence has lasted for longer than the limit."""

    @property
    def _limit(self) -> float:
        return self._later_limit if self._process.num_signs else max(self._later_limit, self._start_limit)

    @property
    def finding(self) -> str:
        """Tells for how long the process has been silent; empty if it has not been for too long."""
        doing = "made no progress in loading" if self._is_for_start else "given no sign of life"
        return f"has {doing} for {self.seconds:.1f} s" if self.seconds > self._limit else ""

    async def _poll(self) -> None:
        num_signs, last = self._process.num_signs, time.monotonic()
        while self.seconds <= self._limit:
            await asyncio.sleep(POLL_SECONDS)
            now = time.monotonic()
            if self._is_for_start and self._process.is_ready:
                await asyncio.Future()
            if self._process.num_signs != num_signs:
                num_signs, self.seconds = self._process.num_signs, 0.0
                self._on_sign()
            else:
                self.seconds += min(now - last, 2 * POLL_SECONDS)
            last = now


@asynccontextmanager
async def followed(
    process: Process, limit: float, *, start_limit: float = 0.0, is_for_start: bool = False,
    on_sign: Callable[[], None] = lambda: None
) -> AsyncIterator[Silence]:
    """Follows a process while the block runs. `limit` is in seconds, and until the first sign `start_limit` if that is
    more; `on_sign` is called for the signs that came."""
    silence = Silence(process, limit, start_limit, is_for_start, on_sign)
    try:
        yield silence
    finally:
        silence.is_over.cancel()
        await asyncio.wait([silence.is_over])
