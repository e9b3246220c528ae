"""Answers in the memory of the router's process."""

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from penstock.router.metrics.caches import CacheMetrics
from penstock.router.response_cache.backend import Bounds, Kept

_OVERHEAD = 256
"""About how many bytes an answer takes beside its content."""


class Memory:
    """Keeps answers within bounds: those that were not asked for the longest leave first."""

    def __init__(self, bounds: Bounds, metrics: CacheMetrics) -> None:
        self._bounds = bounds
        self._metrics = metrics
        self._kept: OrderedDict[bytes, tuple[bytes, float]] = OrderedDict()
        self._size = 0

    async def get(self, keys: Sequence[bytes]) -> dict[bytes, Kept]:
        return {key: kept for key in keys if (kept := self._find(key)) is not None}

    def _find(self, key: bytes) -> Kept | None:
        if (found := self._kept.get(key)) is None:
            return None
        content, kept_at = found
        if (age := time.monotonic() - kept_at) >= self._bounds.age:
            self._drop(key)
            return None
        self._kept.move_to_end(key)
        return Kept(content, age)

    async def put(self, contents: Mapping[bytes, bytes]) -> None:
        now = time.monotonic()
        for key, content in contents.items():
            if key in self._kept:
                self._drop(key)
            self._kept[key] = (content, now)
            self._size += len(content) + _OVERHEAD
        while self._size > self._bounds.size:
            self._drop(next(iter(self._kept)))
        self._metrics.holds(self._size)

    async def close(self) -> None:
        self._kept.clear()

    def _drop(self, key: bytes) -> None:
        content, _ = self._kept.pop(key)
        self._size -= len(content) + _OVERHEAD
        self._metrics.holds(self._size)
