"""Leases of batches: of all routers one works on a batch, and another goes on with it once that one is gone."""

import json
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import bindparam, case, delete, func, insert, or_, select, true, update
from sqlalchemy.ext.asyncio import AsyncConnection

from penstock.router.store.batches import stored
from penstock.router.store.database import Database, clock_of
from penstock.router.store.files import FileWriter
from penstock.router.store.records import ACTIVE, ENDING, AnsweredLine, BatchStatus, StoredBatch
from penstock.router.store.tables import BATCHES, COMPLETED, FAILED, LINES, WAITING

LEASE_SECONDS = 20.0
"""For how long a batch is left to a router of which nothing is heard."""
ANSWERS_BYTES = 1 << 20
"""How many bytes of answers are read at once, but for the last one's."""
_ANSWER = update(LINES).where(
    LINES.c.batch_id == bindparam("batch"), LINES.c.number == bindparam("line")).values(
        state=bindparam("outcome"), answer=bindparam("content"))
"""Stores the answer to a line."""


class LeaseLost(Exception):
    """Raised where another router works on the batch, or it has ended."""


class Leases:
    """The batches that a router works on; `owner` names the router, and no two that run have the same name."""

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self.owner = owner

    async def claim(self, held: Collection[str], *, is_to_end: bool = False) -> "Lease | None":
        """Takes the oldest batch on which nobody works, beside those `held` already; a batch of this name whose router
        has ended is free. If it `is_to_end` it is one whose lines need not be answered any more. Returns None if there
        is none."""
        async with self._database.writing() as connection:
            clock = clock_of(connection)
            is_free = or_(BATCHES.c.lease_until.is_(None), BATCHES.c.lease_until < clock,
                          BATCHES.c.lease_owner == self.owner)
            is_fit = or_(BATCHES.c.expires_at <= clock, BATCHES.c.status.in_(ENDING)) if is_to_end else true()
            oldest = (select(BATCHES.c.id)
                      .where(BATCHES.c.status.in_(ACTIVE), is_free, is_fit, BATCHES.c.id.not_in(held))
                      .order_by(BATCHES.c.created_at).limit(1).with_for_update(skip_locked=True))
            id = (await connection.execute(oldest)).scalar_one_or_none()
            if id is None:
                return None
            # One that nobody has left may have been the end of its router.
            num_faults = BATCHES.c.lease_faults + case((BATCHES.c.lease_owner.is_not(None), 1), else_=0)
            faults = (await connection.execute(update(BATCHES).where(BATCHES.c.id == id).values(
                lease_owner=self.owner, lease_until=clock + LEASE_SECONDS, lease_faults=num_faults,
                ).returning(BATCHES.c.lease_faults))).scalar_one()
        return Lease(self._database, self.owner, id, faults)


class Lease:
    """The lease of one batch. Every write renews it, and raises LeaseLost, and does nothing, where it is lost."""

    def __init__(self, database: Database, owner: str, id: str, num_faults: int) -> None:
        self._database = database
        self._owner = owner
        self._renewed_at = time.monotonic()
        self.id = id
        self.num_faults = num_faults
        """How many faults had been counted since an answer was stored; a lease that was not released is one, too."""

    @asynccontextmanager
    async def _held(self, *states: BatchStatus, **values: Any) -> AsyncIterator[tuple[AsyncConnection, StoredBatch]]:
        """Opens a transaction in which the batch is this router's, in one of these states if any are given, and has
        these values."""
        async with self._database.writing() as connection:
            row = (await connection.execute(update(BATCHES).where(
                BATCHES.c.id == self.id, BATCHES.c.lease_owner == self._owner, BATCHES.c.status.in_(states or ACTIVE),
                ).values(lease_until=clock_of(connection) + LEASE_SECONDS, **values).returning(BATCHES))).one_or_none()
            if row is None:
                raise LeaseLost
            self._renewed_at = time.monotonic()
            yield connection, stored(row)

    async def renew(self) -> StoredBatch:
        """Returns the batch as it is now."""
        async with self._held() as (_, batch):
            return batch

    async def keep(self) -> None:
        """Renews the lease unless a write has done so lately."""
        if time.monotonic() - self._renewed_at > LEASE_SECONDS / 4:
            await self.renew()

    async def release(self) -> None:
        """Leaves the batch to any router, at once."""
        async with self._database.writing() as connection:
            await connection.execute(update(BATCHES).where(
                BATCHES.c.id == self.id, BATCHES.c.lease_owner == self._owner).values(
                    lease_owner=None, lease_until=None))

    async def postpone(self, seconds: float, most_faults: int) -> bool:
        """Counts a fault, and leaves the batch alone for so many seconds; then any router may take it. Returns False,
        and keeps the batch, if it is at least the fault of that number since an answer was stored."""
        async with self._held(lease_faults=BATCHES.c.lease_faults + 1) as (connection, _):
            found = await connection.execute(update(BATCHES).where(
                BATCHES.c.id == self.id, BATCHES.c.lease_faults < most_faults).values(
                    lease_owner=None, lease_until=clock_of(connection) + seconds))
        return found.rowcount == 1

    async def forget_lines(self) -> None:
        """Drops the lines that were added before, since the input is read anew."""
        async with self._held(BatchStatus.VALIDATING) as (connection, _):
            await connection.execute(delete(LINES).where(LINES.c.batch_id == self.id))

    async def add_lines(self, lines: Sequence[tuple[int, str]]) -> list[tuple[int, str, int]]:
        """Adds lines, by number and `custom_id`, of which each must be another one. Returns those whose `custom_id` a
        line before them has, with that one's number; they are not added."""
        async with self._held(BatchStatus.VALIDATING) as (connection, _):
            rows = await connection.execute(select(LINES.c.custom_id, LINES.c.number).where(
                LINES.c.batch_id == self.id, LINES.c.custom_id.in_([custom_id for _, custom_id in lines])))
            known = {row.custom_id: row.number for row in rows}
            new, repeated = [], []
            for number, custom_id in lines:
                if custom_id not in known:
                    known[custom_id] = number
                    new.append({"batch_id": self.id, "number": number, "custom_id": custom_id, "state": WAITING})
                elif known[custom_id] != number:  # else a commit of which nobody heard has added it
                    repeated.append((number, custom_id, known[custom_id]))
            if new:
                await connection.execute(insert(LINES), new)
        return repeated

    async def fail(self, errors: Sequence[dict[str, Any]]) -> None:
        """Ends a batch whose input is not one."""
        async with self._held(BatchStatus.VALIDATING, status=BatchStatus.FAILED, failed_at=int(time.time()),
                              errors=json.dumps(errors)):
            pass

    async def begin(self, total: int, model: str | None) -> StoredBatch:
        """Notes that the lines are being answered."""
        async with self._held(BatchStatus.VALIDATING, status=BatchStatus.IN_PROGRESS, total=total, model=model,
                              in_progress_at=int(time.time())) as (_, batch):
            return batch

    async def finalise(self) -> StoredBatch:
        """Notes that the files of the answers are being written."""
        async with self._held(BatchStatus.IN_PROGRESS, status=BatchStatus.FINALIZING,
                              finalizing_at=int(time.time())) as (_, batch):
            return batch

    async def numbers(self, after: int, limit: int) -> Sequence[int]:
        """Returns up to `limit` numbers of lines that have no answer, those above `after`, in their order."""
        async with self._database.reading() as connection:
            return (await connection.execute(
                select(LINES.c.number).where(LINES.c.batch_id == self.id, LINES.c.number > after,
                                             LINES.c.state == WAITING)
                .order_by(LINES.c.number).limit(limit))).scalars().all()

    async def save(self, answers: Sequence[AnsweredLine]) -> StoredBatch:
        """Stores answers, but for those of lines that have one already, as after a commit of which nobody heard."""
        async with self._held() as (connection, _):
            waiting = set((await connection.execute(select(LINES.c.number).where(
                LINES.c.batch_id == self.id, LINES.c.state == WAITING,
                LINES.c.number.in_([answer.number for answer in answers])))).scalars())
            new = [answer for answer in answers if answer.number in waiting]
            if new:
                await connection.execute(_ANSWER, [
                    {"batch": self.id, "line": each.number, "content": each.content,
                     "outcome": FAILED if each.has_failed else COMPLETED} for each in new])
            num_failed = sum(each.has_failed for each in new)
            row = (await connection.execute(update(BATCHES).where(BATCHES.c.id == self.id).values(
                completed=BATCHES.c.completed + len(new) - num_failed, failed=BATCHES.c.failed + num_failed,
                input_tokens=BATCHES.c.input_tokens + sum(each.input_tokens for each in new),
                cached_tokens=BATCHES.c.cached_tokens + sum(each.cached_tokens for each in new),
                output_tokens=BATCHES.c.output_tokens + sum(each.output_tokens for each in new),
                reasoning_tokens=BATCHES.c.reasoning_tokens + sum(each.reasoning_tokens for each in new),
                lease_faults=0 if new else BATCHES.c.lease_faults,
                ).returning(BATCHES))).one()
            return stored(row)

    async def answers(self, state: int, after: int, limit: int) -> Sequence[tuple[int, str, bytes | None]]:
        """Returns up to `limit` lines in a state, those above `after`, in the order of their numbers: each with its
        `custom_id` and its answer. They are fewer once their answers have ANSWERS_BYTES."""
        async with self._database.reading() as connection:
            lengths = await connection.execute(
                select(LINES.c.number, func.length(LINES.c.answer))
                .where(LINES.c.batch_id == self.id, LINES.c.state == state, LINES.c.number > after)
                .order_by(LINES.c.number).limit(limit))
            numbers, num_bytes = list[int](), 0
            for number, length in lengths:
                if num_bytes < ANSWERS_BYTES:
                    numbers.append(number)
                num_bytes += length or 0
            rows = (await connection.execute(
                select(LINES.c.number, LINES.c.custom_id, LINES.c.answer)
                .where(LINES.c.batch_id == self.id, LINES.c.number.in_(numbers)).order_by(LINES.c.number))).all()
        return [(number, custom_id, answer) for number, custom_id, answer in rows]

    async def end(
        self, status: BatchStatus, output: FileWriter | None, errors: FileWriter | None,
        reasons: Sequence[dict[str, Any]] | None = None,
    ) -> StoredBatch:
        """Ends the batch: its state, its files and the reasons why it has failed are there at once. Its lines are left
        to be swept away."""
        values = {f"{status}_at": int(time.time()), "status": status, "errors": reasons and json.dumps(reasons),
                  "output_file_id": output and output.id, "error_file_id": errors and errors.id}
        async with self._held(**values) as (connection, batch):
            for writer, kind in ((output, "output"), (errors, "error")):
                if writer is not None:
                    await writer.finish_within(
                        connection, f"{batch.id}_{kind}.jsonl", "batch_output", batch.output_seconds)
        for writer in (output, errors):
            if writer is not None:
                writer.is_finished = True
        return batch
