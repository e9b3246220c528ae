"""Leases of rows: of all routers one works on a row, and another goes on with it once that one is gone."""

import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Self

from sqlalchemy import Column, ColumnElement, Row, Table, case, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from penstock.router.store.database import Database

LEASE_SECONDS = 20.0
"""For how long a row is left to a router of which nothing is heard."""
RENEW_SECONDS = LEASE_SECONDS / 10
"""How often a lease is renewed, and it is seen whether clients have changed the row."""


class LeaseLost(Exception):
    """Raised where another router has the row, or nothing is left to do with it."""


class Lease:
    """The lease of one row. Every write renews it, and raises LeaseLost, and does nothing, where it is lost."""

    _TABLE: ClassVar[Table]
    """Has the columns `id`, `created_at`, `status`, and those whose names begin with `lease_`."""
    _STATES: ClassVar[Sequence[str]]
    """The states in which a router has something to do."""
    _READ: ClassVar[Sequence[Table | Column[Any]]]
    """The columns that a write reads."""

    def __init__(self, database: Database, owner: str, row: Row[Any]) -> None:
        self._database = database
        self._owner = owner
        self._renewed_at = time.monotonic()
        self.id: str = row.id
        self.num_faults: int = row.lease_faults
        """How many faults had been counted; a lease that was not released is one, too."""

    @classmethod
    async def claim(
        cls, database: Database, owner: str, held: Collection[str], *conditions: ColumnElement[bool]
    ) -> Self | None:
        """Takes the oldest row on which nobody works, and that meets the conditions, beside those `held` already.
        `owner` names the router, and no two that run have the same name: a row of this name is free, for its router has
        ended. Returns None if there is none."""
        table, columns = cls._TABLE, cls._TABLE.c
        is_free = or_(columns.lease_until.is_(None), columns.lease_until < database.clock, columns.lease_owner == owner)
        oldest = (select(columns.id)
                  .where(columns.status.in_(cls._STATES), is_free, columns.id.not_in(held), *conditions)
                  .order_by(columns.created_at).limit(1).with_for_update(skip_locked=True))
        # One that nobody has left may have been the end of its router.
        num_faults = columns.lease_faults + case((columns.lease_owner.is_not(None), 1), else_=0)
        async with database.writing() as connection:
            id = (await connection.execute(oldest)).scalar_one_or_none()
            if id is None:
                return None
            row = (await connection.execute(update(table).where(columns.id == id).values(
                lease_owner=owner, lease_until=database.clock + LEASE_SECONDS, lease_faults=num_faults,
                ).returning(table))).one()
        return cls(database, owner, row)

    async def keep(self) -> None:
        """Renews the lease unless a write has done so lately."""
        if time.monotonic() - self._renewed_at > LEASE_SECONDS / 4:
            async with self._held():
                pass

    async def release(self) -> None:
        """Leaves the row to any router, at once."""
        async with self._database.writing() as connection:
            await connection.execute(update(self._TABLE).where(*self._is_mine()).values(
                lease_owner=None, lease_until=None))

    async def postpone(self, seconds: float, most_faults: int) -> bool:
        """Counts a fault, and leaves the row alone for so many seconds; then any router may take it. Returns False, and
        keeps the row, if it is at least the fault of that number."""
        faults = self._TABLE.c.lease_faults
        async with self._held(lease_faults=faults + 1) as (connection, _):
            found = await connection.execute(update(self._TABLE).where(*self._is_mine(), faults < most_faults).values(
                lease_owner=None, lease_until=self._database.clock + seconds))
        return found.rowcount == 1

    @asynccontextmanager
    async def _held(
        self, *conditions: ColumnElement[bool], **values: Any
    ) -> AsyncIterator[tuple[AsyncConnection, Row[Any]]]:
        """Opens a transaction in which the row is this router's, meets the conditions, and has these values."""
        async with self._database.writing() as connection:
            row = (await connection.execute(update(self._TABLE).where(
                *self._is_mine(), self._TABLE.c.status.in_(self._STATES), *conditions).values(
                    lease_until=self._database.clock + LEASE_SECONDS, **values).returning(*self._READ))).one_or_none()
            if row is None:
                raise LeaseLost
            self._renewed_at = time.monotonic()
            yield connection, row

    def _is_mine(self) -> tuple[ColumnElement[bool], ...]:
        return self._TABLE.c.id == self.id, self._TABLE.c.lease_owner == self._owner
