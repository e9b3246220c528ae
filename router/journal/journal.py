"""The log of requests: it takes their records at once, and writes them behind."""

import asyncio
import hashlib
import logging
import time
from collections.abc import Sequence
from itertools import islice

from penstock.router import request_id
from penstock.router.generation.request_record import RequestRecord
from penstock.router.journal.entry import Entry, Written
from penstock.router.journal.form import Form
from penstock.router.journal.places import Place
from penstock.router.metrics.journal import JournalMetrics

log = logging.getLogger(__name__)

MAX_WAITING, MAX_TOKENS = 4096, 1 << 22
"""How many requests may wait to be written, and how many tokens they may have, of which bodies count as some, too."""
MAX_AT_ONCE = 256
SHORTEST, LONGEST = 0.1, 5.0
"""The seconds between two tries to write, which grow."""
FAREWELL_SECONDS = 2.0
"""How long the last records may take when the server ends."""


class Journal:
    """Writes the records of a `share` of all requests, chosen by their ids, to a place. No request waits for it:
    when more come than can be written, records are dropped."""

    def __init__(self, place: Place, form: Form, metrics: JournalMetrics, share: float = 1.0) -> None:
        self.keeps_texts = form.content == "texts"
        self._place = place
        self._form = form
        self._metrics = metrics
        self._share = share
        self._waiting: dict[int, tuple[Entry, int]] = {}
        """The requests that wait, each with the number of its tokens, in their order."""
        self._num_taken = self._num_tokens = 0
        self._writer: asyncio.Task[None] | None = None

    def write(self, record: RequestRecord, status: int, path: str | None = None) -> None:
        """Takes the record of a request that has ended."""
        id = request_id.current() or ""
        if self._share < 1 and _place_of(id) >= self._share:
            return
        entry = Entry(id, record, status, path, record.ended_at or time.monotonic())
        num_tokens = entry.num_tokens
        if len(self._waiting) >= MAX_WAITING or self._num_tokens + num_tokens > MAX_TOKENS:
            self._metrics.dropped()
            return
        self._waiting[self._num_taken] = entry, num_tokens
        self._num_taken += 1
        self._num_tokens += num_tokens
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write())

    async def close(self) -> None:
        """Writes what waits, as far as that takes no long time; the rest is dropped."""
        if self._writer is not None:
            await asyncio.wait([self._writer], timeout=FAREWELL_SECONDS)
            self._writer.cancel()
            await asyncio.wait([self._writer])
        self._metrics.dropped(len(self._waiting))

    async def _write(self) -> None:
        while self._waiting:
            some = dict(islice(self._waiting.items(), MAX_AT_ONCE))
            written = await asyncio.to_thread(self._written, [entry for entry, _ in some.values()])
            await self._patiently(written)
            self._metrics.written(len(written))
            for number, (_, num_tokens) in some.items():
                del self._waiting[number]
                self._num_tokens -= num_tokens

    def _written(self, entries: Sequence[Entry]) -> list[Written]:
        """Returns the records of entries; of one that can't be made the log tells."""
        written = []
        for entry in entries:
            try:
                written.append(self._form.written(entry))
            except Exception:
                log.exception("there is no record of the request %s", entry.id)
                self._metrics.dropped()
        return written

    async def _patiently(self, written: Sequence[Written]) -> None:
        pause = SHORTEST
        while True:
            try:
                await self._place.write(written)
                return
            except Exception as error:
                self._metrics.failed()
                if pause == SHORTEST:
                    log.error("the log of requests can't be written now: %s", error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST)


def _place_of(id: str) -> float:
    """Returns a number from 0 to 1 that follows from an id, so that all servers choose the same requests."""
    return int.from_bytes(hashlib.sha256(id.encode()).digest()[:8]) / 2**64
