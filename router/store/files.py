"""The files of the store."""

import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from sqlalchemy import Row, Select, and_, delete, exists, insert, or_, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from penstock.router.store.database import Database
from penstock.router.store.errors import Conflict, NotStored, StoreFull, StoreUnavailable
from penstock.router.store.records import ACTIVE, PART_BYTES, StoredFile
from penstock.router.store.tables import BATCHES, FILES, PARTS

ORPHAN_SECONDS = 24 * 3600
"""How old a file is that is not whole, and that nobody writes any more."""
SWEPT_PARTS = 100
"""How many parts of a file are deleted at once."""
_GONE = update(FILES).values(is_whole=False, created_at=0)
"""Hides a file, and has it be as old as one that nobody writes any more."""


class FileWriter:
    """Writes a new file, part by part, of which nobody hears before it is finished."""

    def __init__(self, database: Database) -> None:
        self.id = f"file-{secrets.token_hex(16)}"
        self.num_bytes = 0
        self.has_begun = False
        """Whether something of it may be in the database."""
        self.is_finished = False
        self._database = database
        self._buffer = bytearray()
        self._num_parts = 0

    async def write(self, content: bytes) -> None:
        """Adds to the file. Raises StoreUnavailable or StoreFull."""
        self.num_bytes += len(content)
        self._buffer += content
        while len(self._buffer) >= PART_BYTES:
            part = bytes(self._buffer[:PART_BYTES])
            async with self._database.writing() as connection:
                await self._add_part(connection, part)
            del self._buffer[:PART_BYTES]
            self._num_parts += 1

    async def finish(self, filename: str, purpose: str, seconds: int | None) -> StoredFile:
        """Has the file be there, for so many seconds. Raises StoreUnavailable or StoreFull."""
        async with self._database.writing() as connection:
            stored = await self.finish_within(connection, filename, purpose, seconds)
        self.is_finished = True
        return stored

    async def finish_within(
        self, connection: AsyncConnection, filename: str, purpose: str, seconds: int | None
    ) -> StoredFile:
        """Has the file be there once the transaction is committed; the caller sets `is_finished` then."""
        now = time.time()
        expires_at = None if seconds is None else int(now) + seconds
        if self._buffer or not self._num_parts:
            await self._add_part(connection, bytes(self._buffer))
        found = await connection.execute(update(FILES).where(FILES.c.id == self.id).values(
            created_at=int(now * 1e6), expires_at=expires_at, filename=filename, purpose=purpose,
            bytes=self.num_bytes, is_whole=True))
        if found.rowcount != 1:  # it took so long that it was taken for a dead router's
            raise StoreUnavailable
        return StoredFile(self.id, int(now), expires_at, filename, purpose, self.num_bytes)

    async def _add_part(self, connection: AsyncConnection, content: bytes) -> None:
        self.has_begun = True
        if not self._num_parts:
            await connection.execute(insert(FILES).values(
                id=self.id, created_at=int(time.time() * 1e6), filename="", purpose="", bytes=0, is_whole=False))
        await connection.execute(insert(PARTS).values(file_id=self.id, number=self._num_parts, content=content))


class Files:
    """Files, each a row, and its content in rows of parts, so that any router can read it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[FileWriter]:
        """Yields a writer of a new file, which is dropped unless it is finished in the block."""
        writer = FileWriter(self._database)
        try:
            yield writer
        finally:
            if writer.has_begun and not writer.is_finished:
                await self._drop(writer.id)

    async def _drop(self, id: str) -> None:
        """Deletes a file that is not whole; where that can't be done, `sweep` does it later."""
        with suppress(StoreUnavailable, StoreFull):
            while await self._drop_parts(id):
                pass

    async def _drop_parts(self, id: str) -> bool:
        """Deletes some parts of a file that is not whole, for a transaction must not take long, and the file with the
        last. Returns whether there are more."""
        async with self._database.writing() as connection:
            await _lock(connection, id)
            is_whole = exists().where(FILES.c.id == id, FILES.c.is_whole.is_(True))
            some = select(PARTS.c.number).where(PARTS.c.file_id == id).limit(SWEPT_PARTS)
            found = await connection.execute(
                delete(PARTS).where(PARTS.c.file_id == id, PARTS.c.number.in_(some), ~is_whole))
            if found.rowcount == SWEPT_PARTS:
                return True
            await connection.execute(delete(FILES).where(FILES.c.id == id, FILES.c.is_whole.is_(False)))
            return False

    async def get(self, id: str, param: str | None = None) -> StoredFile:
        """Returns a file. Raises NotStored, which names `param` as the field that named it."""
        async with self._database.reading() as connection:
            row = (await connection.execute(_there().where(FILES.c.id == id))).one_or_none()
        if row is None:
            raise NotStored("file", id, param)
        return _stored(row)

    async def part(self, id: str, number: int) -> bytes | None:
        """Returns a part of a file's content, counted from 0; None behind the last."""
        async with self._database.reading() as connection:
            content: bytes | None = (await connection.execute(select(PARTS.c.content).where(
                PARTS.c.file_id == id, PARTS.c.number == number))).scalar_one_or_none()
        return content

    async def parts(self, id: str) -> AsyncGenerator[bytes]:
        """Yields the parts of a file's content; fewer of a file that is deleted meanwhile."""
        number = 0
        while (part := await self.part(id, number)) is not None:
            yield part
            number += 1

    async def page(
        self, purpose: str | None, limit: int, after: str | None, is_ascending: bool
    ) -> tuple[Sequence[StoredFile], bool]:
        """Returns up to `limit` files, the newest or the oldest first, from the one behind `after` on, and whether
        there are more. Raises NotStored."""
        place = tuple_(FILES.c.created_at, FILES.c.id)
        query = _there() if purpose is None else _there().where(FILES.c.purpose == purpose)
        async with self._database.reading() as connection:
            if after is not None:
                row = (await connection.execute(_there().where(FILES.c.id == after))).one_or_none()
                if row is None:
                    raise NotStored("file", after, "after")
                last = tuple_(row.created_at, row.id)
                query = query.where(place > last if is_ascending else place < last)
            columns = (FILES.c.created_at, FILES.c.id)
            query = query.order_by(*(columns if is_ascending else (each.desc() for each in columns)))
            rows = (await connection.execute(query.limit(limit + 1))).all()
        return [_stored(row) for row in rows[:limit]], len(rows) > limit

    async def delete(self, id: str) -> None:
        """Deletes a file. Raises NotStored, or Conflict while a batch reads it."""
        async with self._database.writing() as connection:
            await _lock(connection, id)
            user = (await connection.execute(select(BATCHES.c.id, BATCHES.c.status).where(
                BATCHES.c.input_file_id == id, BATCHES.c.status.in_(ACTIVE)).limit(1))).one_or_none()
            if user is not None:
                raise Conflict(f"the file `{id}` is the input of the batch `{user.id}`, which is {user.status}: cancel "
                               "that first")
            found = await connection.execute(_GONE.where(FILES.c.id == id, FILES.c.is_whole.is_(True)))
            if not found.rowcount:
                raise NotStored("file", id)
        await self._drop(id)

    async def sweep(self) -> None:
        """Deletes files that have expired, but for those that a batch reads, and what was left unfinished."""
        now = time.time()
        is_read = exists().where(BATCHES.c.input_file_id == FILES.c.id, BATCHES.c.status.in_(ACTIVE))
        is_over = or_(and_(FILES.c.expires_at <= int(now), ~is_read),
                      and_(FILES.c.is_whole.is_(False), FILES.c.created_at < int((now - ORPHAN_SECONDS) * 1e6)))
        async with self._database.reading() as connection:
            ids = (await connection.execute(select(FILES.c.id).where(is_over))).scalars().all()
        for id in ids:
            async with self._database.writing() as connection:
                await _lock(connection, id)
                await connection.execute(_GONE.where(FILES.c.id == id, is_over))
            await self._drop(id)


async def keep(connection: AsyncConnection, id: str, param: str) -> None:
    """Has a file stay until the transaction is over. Raises NotStored, which names `param` as the field that named
    it."""
    if (await connection.execute(_there().where(FILES.c.id == id).with_for_update(read=True))).one_or_none() is None:
        raise NotStored("file", id, param)


async def _lock(connection: AsyncConnection, id: str) -> None:
    """Waits for those who `keep` a file, so that the transaction sees whatever they have stored."""
    await connection.execute(select(FILES.c.id).where(FILES.c.id == id).with_for_update())


def _there() -> Select[Any]:
    """Returns the query of all files that are whole and have not expired."""
    return select(FILES).where(
        FILES.c.is_whole.is_(True), or_(FILES.c.expires_at.is_(None), FILES.c.expires_at > int(time.time())))


def _stored(row: Row[Any]) -> StoredFile:
    return StoredFile(row.id, row.created_at // 1_000_000, row.expires_at, row.filename, row.purpose, row.bytes)
