"""The use that keys have made of models, in the database."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Row, delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from penstock.router.accounts.use import NAMES, Account, Spent, Use
from penstock.router.store.database import Database
from penstock.router.store.tables import USE, USE_WRITERS

KEPT_SECONDS = 30 * 24 * 3600.0
"""For how long it is known which parts of its use a process has added that adds none any more."""


class UsageTable:
    """Adds use to the totals of a day, a key and a model, which several servers may do at once. Nothing deletes them.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(
        self, writer: str, number: int, part: Mapping[Account, Use], day: str
    ) -> dict[tuple[str, str, str], Spent]:
        """Adds a part of the use of a `writer`, unless it has added the one of this number, as by a commit of which
        nobody heard. Returns how much each key has spent on the `day` in all. Raises StoreUnavailable or StoreFull."""
        if not part:
            async with self._database.reading() as connection:
                return await _spent(connection, day)
        async with self._database.writing() as connection:
            if await self._is_new(connection, writer, number):
                insert = self._database.inserting(USE)
                sums = {name: USE.c[name] + insert.excluded[name] for name in NAMES}
                await connection.execute(
                    insert.on_conflict_do_update(index_elements=[*USE.primary_key], set_=sums),
                    [{"day": account.day, "api_key": account.key, "model": account.model, "currency": account.currency,
                      **{name: getattr(use, name) for name in NAMES}}
                     for account, use in sorted(part.items(), key=lambda each: each[0])])  # or two could deadlock
            return await _spent(connection, day)

    async def _is_new(self, connection: AsyncConnection, writer: str, number: int) -> bool:
        """Notes that a part is added; returns whether it was not before."""
        insert = self._database.inserting(USE_WRITERS).values(
            writer=writer, number=number, written_at=self._database.clock)
        new = {name: insert.excluded[name] for name in ("number", "written_at")}
        return (await connection.execute(insert.on_conflict_do_update(
            index_elements=[USE_WRITERS.c.writer], set_=new, where=USE_WRITERS.c.number < insert.excluded.number,
            ).returning(USE_WRITERS.c.number))).one_or_none() is not None

    async def find(self, first: str, last: str, key: str | None, limit: int) -> list[tuple[Account, Use]]:
        """Returns up to `limit` totals of the days from the first to the last, of one key or of all, in the order of
        days, keys and models. Raises StoreUnavailable."""
        query = select(USE).where(USE.c.day.between(first, last))
        if key is not None:
            query = query.where(USE.c.api_key == key)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query.order_by(*USE.primary_key).limit(limit))).all()
        return [_total(row) for row in rows]

    async def sweep(self) -> None:
        """Forgets processes that have added nothing for long. Raises StoreUnavailable."""
        async with self._database.writing() as connection:
            await connection.execute(
                delete(USE_WRITERS).where(USE_WRITERS.c.written_at < self._database.clock - KEPT_SECONDS))


async def _spent(connection: AsyncConnection, day: str) -> dict[tuple[str, str, str], Spent]:
    rows = (await connection.execute(
        select(USE.c.api_key, USE.c.currency, func.sum(USE.c.input_tokens + USE.c.output_tokens), func.sum(USE.c.nanos))
        .where(USE.c.day == day).group_by(USE.c.api_key, USE.c.currency))).all()
    return {(day, key, currency): Spent(int(tokens), int(nanos)) for key, currency, tokens, nanos in rows}


def _total(row: Row[Any]) -> tuple[Account, Use]:
    return (Account(row.day, row.api_key, row.model, row.currency),
            Use(**{name: getattr(row, name) for name in NAMES}))
