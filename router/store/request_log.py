"""The records of requests in the database."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import insert

from penstock.router.store.database import Database
from penstock.router.store.tables import REQUEST_LOG


class RequestLog:
    """Adds records, each a row with its most important fields in columns. Nobody here reads or deletes them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Adds rows. Raises StoreUnavailable or StoreFull."""
        if rows:
            async with self._database.writing() as connection:
                await connection.execute(insert(REQUEST_LOG), [*rows])
