"""Answers in the database of files and batches, which all routers share that use it."""

import asyncio
import time
from collections.abc import Mapping, Sequence

from penstock.router.metrics.caches import CacheMetrics
from penstock.router.response_cache.backend import Bounds, Kept
from penstock.router.store.database import Database
from penstock.router.store.kept_answers import KeptAnswers

SWEEP_SECONDS = 30.0
"""The least seconds between two looks for answers that are too old or too many."""


class _Read:
    """A read of the answers that several requests look for."""

    def __init__(self) -> None:
        self.keys: set[bytes] = set()
        self.found: asyncio.Future[dict[bytes, Kept]] = asyncio.get_running_loop().create_future()


class InDatabase:
    """Keeps answers in `database`. One read runs at a time, and all who ask meanwhile share the next, so that in a
    burst of requests none waits for a connection for long. Now and then, behind a write, those that are too old or too
    many are deleted: until then the bounds may be exceeded."""

    def __init__(self, database: Database, bounds: Bounds, metrics: CacheMetrics) -> None:
        self._answers = KeptAnswers(database, bounds.size, bounds.age)
        self._metrics = metrics
        self._next_read = _Read()
        self._turn = asyncio.Lock()
        self._swept_at = -SWEEP_SECONDS
        self._sweeping: asyncio.Task[None] | None = None

    async def get(self, keys: Sequence[bytes]) -> dict[bytes, Kept]:
        read = self._next_read
        read.keys.update(keys)
        async with self._turn:
            if not read.found.done():
                self._next_read = _Read()
                await self._read(read)
        found = read.found.result()
        return {key: found[key] for key in keys if key in found}

    async def _read(self, read: _Read) -> None:
        try:
            found = await self._answers.find([*read.keys])
        except Exception as error:
            read.found.set_exception(error)
        else:
            read.found.set_result({key: Kept(*each) for key, each in found.items()})

    async def put(self, contents: Mapping[bytes, bytes]) -> None:
        await self._answers.keep(contents)
        if time.monotonic() - self._swept_at >= SWEEP_SECONDS:
            self._swept_at = time.monotonic()
            self._sweeping = asyncio.create_task(self._sweep())

    async def _sweep(self) -> None:
        try:
            self._metrics.holds(await self._answers.sweep())
        except Exception:  # of which the database has told
            self._metrics.failed()

    async def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
