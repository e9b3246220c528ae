"""The work on one batch, from the check of its lines to the files of its answers."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import replace
from functools import partial

from penstock.router.batches.answers import answer_patiently
from penstock.router.batches.checking import Checking, error_entry
from penstock.router.batches.lines import Line, checked_line, most_sequences, raw_lines
from penstock.router.batches.outputs import Outputs
from penstock.router.batches.window import Window
from penstock.router.generation.services import Services
from penstock.router.leased_work import farewell
from penstock.router.metrics.batches import BatchMetrics
from penstock.router.store.batch_leases import BatchLease
from penstock.router.store.leases import RENEW_SECONDS, LeaseLost
from penstock.router.store.patience import parts_of, patiently
from penstock.router.store.records import AnsweredLine, BatchStatus, StoredBatch
from penstock.router.store.store import Store

log = logging.getLogger(__name__)

SAVE_SECONDS = 0.5
"""How long an answer waits for others that are stored with it."""
GROUP = 64
"""How many answers are stored at once."""
_ANY_LENGTH = 1 << 40
"""The check has found that no line is too long, by the limit of its time."""
_PAGE = 1000
"""How many numbers of lines are read at once."""
_FAULT = error_entry("server_error", None, "The server has failed at this batch again and again, by a fault of its own "
                     "that its log tells.")
"""Tells why a batch has failed that is given up."""


class BatchRun:
    """Works on the batch of a lease until it has ended, or the lease is lost."""

    def __init__(
        self, services: Services, store: Store, lease: BatchLease, window: Window, metrics: BatchMetrics
    ) -> None:
        self._services = services
        self._store = store
        self._lease = lease
        self._window = window
        self._metrics = metrics
        self._api_key: str | None = None
        self._reading: asyncio.Task[None] | None = None
        self._asking: dict[asyncio.Task[AnsweredLine], int] = {}
        """The lines that are asked, and what each takes of the window."""
        self._done: list[AnsweredLine] = []
        self._woken = asyncio.Event()
        self._is_due = asyncio.Event()
        """Set once answers need not wait for others to be stored with them."""
        self._fault: BaseException | None = None

    def wake(self) -> None:
        """Tells that the batch may have been cancelled."""
        self._woken.set()

    async def run(self) -> None:
        """Does all that is left to do. Raises LeaseLost."""
        try:
            await self._run(await patiently(self._lease.renew))
        finally:
            for answer in self._done:  # which this router may not store any more
                self._window.let_go(answer)

    async def give_up(self) -> None:
        """Ends the batch as failed by a fault of the router; answers are kept, unless that fails, too. Raises
        LeaseLost."""
        batch = await patiently(self._lease.renew)
        try:
            if batch.in_progress_at is not None:
                await Outputs(self._store.files, self._lease).end(BatchStatus.FAILED, [_FAULT])
                return
        except LeaseLost:
            raise
        except Exception:
            log.exception("the answers of the batch %s can't be written", self._lease.id)
        await patiently(partial(self._lease.end, BatchStatus.FAILED, None, None, [_FAULT]))

    async def _run(self, batch: StoredBatch) -> None:
        is_over = time.time() >= batch.expires_at
        if batch.status is BatchStatus.VALIDATING:
            if is_over:
                await patiently(partial(self._lease.end, BatchStatus.EXPIRED, None, None))
                return
            checked = await Checking(self._store.files, self._lease, batch, self._services.first.limits).run()
            if checked is None:
                return
            batch = checked
        if batch.status is BatchStatus.IN_PROGRESS and not is_over:
            batch = await self._answer_lines(batch)
        await self._end(batch)

    async def _end(self, batch: StoredBatch) -> None:
        is_answered = batch.completed + batch.failed == batch.total
        if batch.status is BatchStatus.CANCELLING:
            status = BatchStatus.CANCELLED
            if batch.in_progress_at is None:  # its lines were not all looked at
                await patiently(partial(self._lease.end, status, None, None))
                return
        else:
            status = BatchStatus.COMPLETED if is_answered else BatchStatus.EXPIRED
            if batch.status is BatchStatus.IN_PROGRESS:
                await patiently(self._lease.finalise)
        await Outputs(self._store.files, self._lease).end(status)

    async def _answer_lines(self, batch: StoredBatch) -> StoredBatch:
        """Answers all lines that have no answer yet, until the batch is cancelled or expires. Returns the batch, in
        which all answers are stored."""
        self._api_key = batch.api_key
        self._reading = asyncio.create_task(self._read(batch), name="reading a batch")
        self._reading.add_done_callback(self._hasten)
        try:
            while True:
                self._woken.clear()
                self._is_due.clear()
                batch = await patiently(self._save)
                if batch.status is not BatchStatus.IN_PROGRESS or time.time() >= batch.expires_at:
                    break
                if self._fault is not None:
                    raise self._fault
                if self._reading.done() and not self._asking and not self._done:
                    self._reading.result()
                    break
                await self._wait()
        except asyncio.CancelledError:
            await self._leave()
            raise
        finally:
            await self._stop()
        while self._done:
            batch = await patiently(self._save)
        return batch

    async def _wait(self) -> None:
        """Waits until there are answers to store, a while after the first, or the lease is to be renewed."""
        if not self._done:
            with suppress(TimeoutError):
                async with asyncio.timeout(RENEW_SECONDS):
                    await self._woken.wait()
        if self._done and len(self._done) < GROUP and self._asking:
            with suppress(TimeoutError):
                async with asyncio.timeout(SAVE_SECONDS):
                    await self._is_due.wait()

    def _hasten(self, _: asyncio.Task[object]) -> None:
        """Has answers be stored without a pause if no other comes, or if other lines wait for that."""
        assert self._reading is not None
        if self._window.is_full or (self._reading.done() and not self._asking):
            self._woken.set()
            self._is_due.set()

    async def _save(self) -> StoredBatch:
        """Stores the answers that there are, and renews the lease."""
        saved = self._done[:GROUP]
        batch = await self._lease.save(saved)
        del self._done[:len(saved)]
        for answer in saved:
            self._window.let_go(answer)
            self._metrics.answered(answer.has_failed)
        return batch

    async def _stop(self) -> None:
        """Ends the questions that run."""
        assert self._reading is not None
        tasks = [self._reading, *self._asking]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for size in self._asking.values():
            self._window.give_back(size)
        self._asking.clear()

    async def _leave(self) -> None:
        """Stores the answers that there are, in as far as the database takes them at once."""
        async with farewell():
            while self._done:
                await self._save()

    async def _read(self, batch: StoredBatch) -> None:
        """Asks the lines that have no answer, as the window has room for them."""
        waiting = self._waiting()
        number = await anext(waiting, None)
        async for raw in raw_lines(parts_of(self._store.files, batch.input_file_id), _ANY_LENGTH):
            if number is None:
                return
            if raw.number != number:
                continue
            number = await anext(waiting, None)
            line = checked_line(raw)
            size = await self._window.take(raw.length, most_sequences(line.url, line.body))
            task = asyncio.create_task(self._answer(line), name="a line of a batch")
            self._asking[task] = size
            task.add_done_callback(self._note)
        if number is not None:
            raise EOFError(f"the input file ends before its line {number}")

    async def _waiting(self) -> AsyncGenerator[int]:
        """Yields the numbers of the lines that have no answer, in their order."""
        last = 0
        while numbers := await patiently(partial(self._lease.numbers, last, _PAGE)):
            for number in numbers:
                yield number
            last = numbers[-1]

    def _note(self, task: asyncio.Task[AnsweredLine]) -> None:
        """Takes the answer to a line."""
        if task.cancelled():
            return
        self._fault = self._fault or task.exception()
        if self._fault is None:
            self._window.give_back(self._asking.pop(task))
            self._done.append(task.result())
            self._window.keep(task.result())
        self._woken.set()
        self._hasten(task)

    async def _answer(self, line: Line) -> AnsweredLine:
        return (await answer_patiently(self._services, replace(line, api_key=self._api_key))).to_store(line.number)
