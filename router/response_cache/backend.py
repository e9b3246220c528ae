"""The places where answers are kept, and the circuit that keeps requests from waiting for one that is away."""

import asyncio
import logging
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from penstock.router.metrics.caches import CacheMetrics

log = logging.getLogger(__name__)

_T = TypeVar("_T")

GET_SECONDS = 0.1
"""How long a request waits to hear whether its answer is kept."""
PUT_SECONDS = 2.0
SHORTEST, LONGEST = 1.0, 15.0
"""The seconds for which a place that has failed is left alone, which grow."""


class Kept:
    """An answer that was kept, and for how many seconds."""

    __slots__ = ("age", "content")

    def __init__(self, content: bytes, age: float) -> None:
        self.content = content
        self.age = age


class Backend(Protocol):
    """A place of answers. Any exception of its methods means that it can't be used now."""

    async def get(self, keys: Sequence[bytes]) -> dict[bytes, Kept]:
        """Returns those of the answers that are kept and not too old."""
        ...

    async def put(self, contents: Mapping[bytes, bytes]) -> None:
        """Keeps answers by their keys, and lets go of others where there is no room."""

    async def close(self) -> None:
        """Lets go of connections."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many bytes of answers are kept, and for how many seconds each."""

    size: int
    age: float

    @property
    def entry(self) -> int:
        """The most bytes of one answer, so that no single one drives out most of the others."""
        return max(1, self.size // 8)


class Circuit:
    """Asks a backend, but not while it is away: after a failure, or where an answer has not come in time, nobody waits
    for it again until some seconds are over, and then one request at first."""

    def __init__(self, backend: Backend, metrics: CacheMetrics) -> None:
        self._backend = backend
        self._metrics = metrics
        self._closed_until = 0.0
        self._pause = SHORTEST
        self._late: set[asyncio.Task[Any]] = set()
        """Those that have not ended in time: they are left to end by themselves."""

    @property
    def is_open(self) -> bool:
        """Whether the backend may be asked now."""
        return not self._late and time.monotonic() >= self._closed_until

    async def get(self, keys: Sequence[bytes]) -> dict[bytes, Kept]:
        """Returns those of the answers that are kept; none where the backend is away."""
        return (await self._in_time(self._backend.get(keys), GET_SECONDS) if self.is_open else None) or {}

    async def put(self, contents: Mapping[bytes, bytes]) -> bool:
        """Keeps answers, if the backend is there; tells whether that was done."""
        return self.is_open and await self._in_time(self._put(contents), PUT_SECONDS) is not None

    async def _put(self, contents: Mapping[bytes, bytes]) -> bool:
        await self._backend.put(contents)
        return True

    async def close(self) -> None:
        for task in self._late:
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)
        await self._backend.close()

    async def _in_time(self, work: Coroutine[Any, Any, _T], seconds: float) -> _T | None:
        was_away = self._closed_until
        if was_away:
            self._closed_until = time.monotonic() + self._pause  # of several at once, one tries
        task = asyncio.ensure_future(work)
        try:
            done, _ = await asyncio.wait([task], timeout=seconds)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not done:
            self._late.add(task)
            task.add_done_callback(self._forget)
            self._fail(f"it has not answered within {seconds:g} s")
            return None
        if (error := task.exception()) is not None:
            self._fail(str(error) or type(error).__name__)
            return None
        if was_away:
            log.info("the cache of answers can be reached again")
        self._closed_until, self._pause = 0.0, SHORTEST
        return task.result()

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._late.discard(task)
        if not task.cancelled():
            task.exception()  # which was counted as late

    def _fail(self, reason: str) -> None:
        self._metrics.failed()
        if not self._closed_until:
            log.error("the cache of answers can't be used now: %s", reason)
        else:
            self._pause = min(2 * self._pause, LONGEST)
        self._closed_until = time.monotonic() + self._pause
