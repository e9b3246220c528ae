"""The database, SQLite or PostgreSQL: its connections, transactions and failures."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Self

from sqlalchemy import ColumnElement, Table, literal_column
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.exc import TimeoutError as NoConnectionFree
from sqlalchemy.ext.asyncio import AsyncConnection

from penstock.router.store import engines
from penstock.router.store.engines import NEEDS_WRITING, WAIT_SECONDS, StoreError
from penstock.router.store.errors import StoreFull, StoreUnavailable
from penstock.router.store.migrations import NewerSchema, migrate

log = logging.getLogger(__name__)

FILE_NAME = "penstock.sqlite3"
TOLD_SECONDS = 60.0
"""The least seconds between two lines in the log that tell of the same trouble."""
_CLOCKS = {"sqlite": "(julianday('now') - 2440587.5) * 86400.0",
           "postgresql": "extract(epoch from clock_timestamp())::float8"}
"""The expressions of the time, by kind of database."""


class Database:
    """Holds the connections to a database, whose tables are made, or brought to this version, before they are used."""

    def __init__(self, url: URL) -> None:
        self.name = url.set(drivername=url.get_backend_name()).render_as_string(hide_password=True)
        self.on_failure: Callable[[], None] = lambda: None
        """Is called for each read and write that has failed."""
        self.kind = url.get_backend_name()
        self.clock: ColumnElement[float] = literal_column(_CLOCKS[self.kind])
        """The database's own time in seconds since 1970, for the times of several machines differ."""
        self._is_sqlite = self.kind == "sqlite"
        self._engine, self._connections = engines.engine(url)
        self._turn = asyncio.Lock()
        """Only one connection to SQLite writes at a time."""
        self._errors: tuple[type[BaseException], ...] = (
            DBAPIError, NoConnectionFree, OSError, *(() if self._is_sqlite else engines.connection_errors()))
        self._is_ready = False
        self._told_at = -TOLD_SECONDS

    @classmethod
    def in_folder(cls, folder: Path) -> Self:
        """Returns the SQLite database of a folder, which is made if there is none; nobody else may read either. Raises
        StoreError."""
        file = folder.absolute() / FILE_NAME
        try:
            folder.mkdir(0o700, parents=True, exist_ok=True)
            file.touch(0o600)  # which opens no file that is there: closing it would drop SQLite's locks on it
        except OSError as error:
            raise StoreError(f"`data_dir`: {file} can't be written: {error.strerror}") from error
        return cls(URL.create("sqlite+aiosqlite", database=str(file)))

    @classmethod
    def at_url(cls, text: str) -> Self:
        """Returns the PostgreSQL database at a URL. Raises StoreError."""
        return cls(engines.parsed_url(text))

    async def prepare(self) -> None:
        """Makes the tables, or brings them to this version. One that can't be reached now is told in the log, and is
        prepared when it is first used. Raises StoreError for one of a newer version, and one that is none, or does not
        let this server in."""
        with suppress(StoreUnavailable, StoreFull):
            await self._prepare()

    async def _prepare(self) -> None:
        async with self._telling_failures(), self._in_turn():
            if self._is_ready:
                return
            try:
                async with self._begun(NEEDS_WRITING) as connection:
                    await connection.run_sync(migrate)
            except NewerSchema as error:
                raise StoreError(f"{self.name} {error}") from error
            except Exception as error:
                if not engines.is_lasting(error, self._is_sqlite):
                    raise
                raise StoreError(f"{self.name} can't be used: {engines.reason(error)}") from error
            self._is_ready = True

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """Opens a transaction that changes nothing. Raises StoreUnavailable."""
        await self._check()
        async with self._telling_failures(), self._begun("") as connection:
            yield connection

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncConnection]:
        """Opens a transaction, which is committed unless the block raises. Raises StoreUnavailable or StoreFull; if it
        comes from the commit, nobody knows whether that has happened."""
        await self._check()
        async with self._telling_failures(), self._in_turn(), self._begun(NEEDS_WRITING) as connection:
            yield connection

    def inserting(self, table: Table) -> postgresql.Insert | sqlite.Insert:
        """Returns an insertion that may change a row which is there, for which each kind has its own way."""
        return sqlite.insert(table) if self._is_sqlite else postgresql.insert(table)

    async def close(self) -> None:
        """Ends the connections."""
        await self._engine.dispose()
        await self._connections.close()

    async def _check(self) -> None:
        if not self._is_ready:
            try:
                await self._prepare()
            except StoreError as error:  # whose words are not for clients
                self.on_failure()
                self._tell(str(error))
                raise StoreUnavailable from error

    @asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[None]:
        """Waits until nobody else writes, where only one may. Raises TimeoutError."""
        if not self._is_sqlite:
            yield
            return
        async with asyncio.timeout(WAIT_SECONDS):
            await self._turn.acquire()
        try:
            yield
        finally:
            self._turn.release()

    @asynccontextmanager
    async def _begun(self, purpose: str) -> AsyncIterator[AsyncConnection]:
        async with self._engine.connect() as connection:
            if purpose:
                await connection.execution_options(**{purpose: True})
            async with connection.begin():
                yield connection

    @asynccontextmanager
    async def _telling_failures(self) -> AsyncIterator[None]:
        """Has failures of the database in the block counted, told in the log, and raised as what clients are told."""
        try:
            yield
        except (IntegrityError, ProgrammingError):
            raise
        except self._errors as error:
            self.on_failure()
            is_full = engines.is_full(error)
            trouble = "is full" if is_full else "can't be used now"
            self._tell(f"{self.name} {trouble}: {engines.reason(error)}")
            raise (StoreFull if is_full else StoreUnavailable) from error

    def _tell(self, trouble: str) -> None:
        if time.monotonic() - self._told_at >= TOLD_SECONDS:
            self._told_at = time.monotonic()
            log.error("the database %s", trouble)
