"""Leases of batches, and all that whoever answers a batch stores of it."""

import json
import time
from collections.abc import Collection, Sequence
from typing import Any, Self

from sqlalchemy import bindparam, delete, func, insert, or_, select, update

from penstock.router.store.batches import stored
from penstock.router.store.database import Database
from penstock.router.store.files import FileWriter
from penstock.router.store.leases import Lease
from penstock.router.store.records import ACTIVE, ENDING, AnsweredLine, BatchStatus, StoredBatch
from penstock.router.store.tables import BATCHES, COMPLETED, FAILED, LINES, WAITING

ANSWERS_BYTES = 1 << 20
"""How many bytes of answers are read at once, but for the last one's."""
_ANSWER = update(LINES).where(
    LINES.c.batch_id == bindparam("batch"), LINES.c.number == bindparam("line")).values(
        state=bindparam("outcome"), answer=bindparam("content"))
"""Stores the answer to a line."""
_IS_NEW = BATCHES.c.status == BatchStatus.VALIDATING
"""Tells whether the batch's lines are not known yet."""


class BatchLease(Lease):
    """The lease of one batch. Its faults are those since an answer was stored."""

    _TABLE = BATCHES
    _STATES = ACTIVE
    _READ = (BATCHES,)

    @classmethod
    async def claim_ending(cls, database: Database, owner: str, held: Collection[str]) -> Self | None:
        """Takes a batch as `claim` does, but one whose lines need not be answered any more."""
        return await cls.claim(database, owner, held, or_(
            BATCHES.c.expires_at <= database.clock, BATCHES.c.status.in_(ENDING)))

    async def renew(self) -> StoredBatch:
        """Returns the batch as it is now."""
        async with self._held() as (_, row):
            return stored(row)

    async def forget_lines(self) -> None:
        """Drops the lines that were added before, since the input is read anew."""
        async with self._held(_IS_NEW) as (connection, _):
            await connection.execute(delete(LINES).where(LINES.c.batch_id == self.id))

    async def add_lines(self, lines: Sequence[tuple[int, str]]) -> list[tuple[int, str, int]]:
        """Adds lines, by number and `custom_id`, of which each must be another one. Returns those whose `custom_id` a
        line before them has, with that one's number; they are not added."""
        async with self._held(_IS_NEW) as (connection, _):
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
        async with self._held(_IS_NEW, status=BatchStatus.FAILED, failed_at=int(time.time()),
                              errors=json.dumps(errors)):
            pass

    async def begin(self, total: int, model: str | None) -> StoredBatch:
        """Notes that the lines are being answered."""
        async with self._held(_IS_NEW, status=BatchStatus.IN_PROGRESS, total=total, model=model,
                              in_progress_at=int(time.time())) as (_, row):
            return stored(row)

    async def finalise(self) -> StoredBatch:
        """Notes that the files of the answers are being written."""
        async with self._held(BATCHES.c.status == BatchStatus.IN_PROGRESS, status=BatchStatus.FINALIZING,
                              finalizing_at=int(time.time())) as (_, row):
            return stored(row)

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
        async with self._held(**values) as (connection, row):
            batch = stored(row)
            for writer, kind in ((output, "output"), (errors, "error")):
                if writer is not None:
                    await writer.finish_within(
                        connection, f"{batch.id}_{kind}.jsonl", "batch_output", batch.output_seconds)
        for writer in (output, errors):
            if writer is not None:
                writer.is_finished = True
        return batch
