"""The batches of the store, as clients make, see and cancel them; `batch_leases.py` has what those do who answer
them."""

import asyncio
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Row, delete, func, insert, or_, select, tuple_, update

from penstock.router.store.database import Database
from penstock.router.store.errors import Conflict, NotStored
from penstock.router.store.files import keep
from penstock.router.store.records import ACTIVE, BatchStatus, StoredBatch
from penstock.router.store.tables import BATCHES, LINES

SWEPT_LINES = 1000
"""How many lines of batches that have ended are deleted at once."""


class Batches:
    """Batches, each a row. `changed` is set when a client of this router has made or cancelled one."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.changed = asyncio.Event()

    async def add(
        self, endpoint: str, input_file_id: str, completion_window: str, seconds: int,
        metadata: Mapping[str, str] | None, output_seconds: int | None, api_key: str | None = None,
    ) -> StoredBatch:
        """Adds a batch, which expires after so many seconds, and has the name of its maker's key. Raises NotStored if
        its file is gone."""
        now = time.time()
        values = {
            "id": f"batch_{secrets.token_hex(16)}", "created_at": int(now * 1e6), "endpoint": endpoint,
            "input_file_id": input_file_id, "completion_window": completion_window,
            "metadata": None if metadata is None else json.dumps(dict(metadata)), "output_seconds": output_seconds,
            "status": BatchStatus.VALIDATING, "expires_at": int(now) + seconds, "total": 0, "completed": 0,
            "failed": 0, "input_tokens": 0, "cached_tokens": 0, "output_tokens": 0, "reasoning_tokens": 0,
            "lease_faults": 0, "api_key": api_key}
        async with self._database.writing() as connection:
            await keep(connection, input_file_id, "input_file_id")
            row = (await connection.execute(insert(BATCHES).values(values).returning(BATCHES))).one()
        self.changed.set()
        return stored(row)

    async def get(self, id: str) -> StoredBatch:
        """Returns a batch. Raises NotStored."""
        async with self._database.reading() as connection:
            row = (await connection.execute(select(BATCHES).where(BATCHES.c.id == id))).one_or_none()
        if row is None:
            raise NotStored("batch", id)
        return stored(row)

    async def page(self, limit: int, after: str | None) -> tuple[Sequence[StoredBatch], bool]:
        """Returns up to `limit` batches, the newest first, from the one behind `after` on, and whether there are more.
        Raises NotStored."""
        query = select(BATCHES)
        async with self._database.reading() as connection:
            if after is not None:
                row = (await connection.execute(select(BATCHES).where(BATCHES.c.id == after))).one_or_none()
                if row is None:
                    raise NotStored("batch", after, "after")
                query = query.where(tuple_(BATCHES.c.created_at, BATCHES.c.id) < tuple_(row.created_at, row.id))
            query = query.order_by(BATCHES.c.created_at.desc(), BATCHES.c.id.desc()).limit(limit + 1)
            rows = (await connection.execute(query)).all()
        return [stored(row) for row in rows[:limit]], len(rows) > limit

    async def cancel(self, id: str) -> StoredBatch:
        """Cancels a batch on which nobody has worked yet; others are cancelled by whoever works on them. Raises
        NotStored, or Conflict if it has ended, or is about to."""
        now = int(time.time())
        async with self._database.writing() as connection:
            is_free = or_(BATCHES.c.lease_owner.is_(None), BATCHES.c.lease_until < self._database.clock)
            row = (await connection.execute(update(BATCHES).where(
                BATCHES.c.id == id, BATCHES.c.status == BatchStatus.VALIDATING, is_free).values(
                    status=BatchStatus.CANCELLED, cancelling_at=now, cancelled_at=now,
                    ).returning(BATCHES))).one_or_none()
            if row is None:
                row = (await connection.execute(update(BATCHES).where(
                    BATCHES.c.id == id, BATCHES.c.status.in_((BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS))).values(
                        status=BatchStatus.CANCELLING, cancelling_at=now).returning(BATCHES))).one_or_none()
        self.changed.set()
        if row is not None:
            return stored(row)
        batch = await self.get(id)
        if batch.status in (BatchStatus.CANCELLING, BatchStatus.CANCELLED):
            return batch
        raise Conflict(f"the batch `{id}` can't be cancelled any more: it is {batch.status}")

    async def sweep(self) -> None:
        """Deletes the lines of batches that have ended, some at a time, for a transaction must not take long."""
        ended = select(BATCHES.c.id).where(BATCHES.c.status.not_in(ACTIVE))
        some = select(LINES.c.batch_id, LINES.c.number).where(LINES.c.batch_id.in_(ended)).limit(SWEPT_LINES)
        num_deleted = SWEPT_LINES
        while num_deleted == SWEPT_LINES:
            async with self._database.writing() as connection:
                num_deleted = (await connection.execute(
                    delete(LINES).where(tuple_(LINES.c.batch_id, LINES.c.number).in_(some)))).rowcount

    async def count(self) -> dict[BatchStatus, int]:
        """Returns how many batches there are in each state."""
        async with self._database.reading() as connection:
            rows = await connection.execute(
                select(BATCHES.c.status, func.count().label("number")).group_by(BATCHES.c.status))
            found = {row.status: row.number for row in rows}
        return {status: found.get(status, 0) for status in BatchStatus}


def stored(row: Row[Any]) -> StoredBatch:
    """Returns the batch that a row is."""
    values = {name: value for name, value in row._mapping.items() if not name.startswith("lease_")}
    for name in ("metadata", "errors"):
        values[name] = None if values[name] is None else json.loads(values[name])
    return StoredBatch(**{**values, "created_at": row.created_at // 1_000_000, "status": BatchStatus(row.status)})
