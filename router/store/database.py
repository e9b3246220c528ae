"""The database, SQLite or PostgreSQL: its connections, transactions and failures."""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Self

from sqlalchemy import ColumnElement, Connection, event, literal_column
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.exc import TimeoutError as NoConnectionFree
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from penstock.router.store.errors import StoreFull, StoreUnavailable
from penstock.router.store.migrations import NewerSchema, migrate

log = logging.getLogger(__name__)

FILE_NAME = "penstock.sqlite3"
WAIT_SECONDS = 10
"""How long a statement, a connection or a turn to write may take."""
TOLD_SECONDS = 60.0
"""The least seconds between two lines in the log that tell of the same trouble."""
_NEEDS_WRITING = "needs_writing"
_CLOCKS = {"sqlite": "(julianday('now') - 2440587.5) * 86400.0",
           "postgresql": "extract(epoch from clock_timestamp())::float8"}
"""The database's own time, for those of several machines differ."""
_FULL = ("database or disk is full", "No space left on device", "could not extend file")


class StoreError(ValueError):
    """Raised for a database that can't be used; the message is a sentence that says why."""


class Database:
    """Holds the connections to a database, whose tables are made, or brought to this version, before they are used."""

    def __init__(self, url: URL) -> None:
        self.name = url.render_as_string(hide_password=True)
        self.on_failure: Callable[[], None] = lambda: None
        """Is called for each read and write that has failed."""
        is_sqlite = url.get_backend_name() == "sqlite"
        self._engine = _sqlite(url) if is_sqlite else _postgresql(url)
        self._turn: asyncio.Lock | None = asyncio.Lock() if is_sqlite else None
        self._errors: tuple[type[BaseException], ...] = (
            DBAPIError, NoConnectionFree, OSError, *(() if is_sqlite else _connection_errors()))
        self._is_ready = False
        self._told_at = -TOLD_SECONDS

    @classmethod
    def in_folder(cls, folder: Path) -> Self:
        """Returns the SQLite database of a folder, which is made if there is none; nobody else may read either. Raises
        StoreError."""
        file = folder.absolute() / FILE_NAME
        try:
            folder.mkdir(0o700, parents=True, exist_ok=True)
            os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise StoreError(f"`data_dir`: {file} can't be written: {error.strerror}") from error
        return cls(URL.create("sqlite+aiosqlite", database=str(file)))

    @classmethod
    def at_url(cls, text: str) -> Self:
        """Returns the PostgreSQL database at a URL. Raises StoreError."""
        try:
            url = make_url(text)
        except ArgumentError as error:
            raise StoreError("`database_url` must be a URL such as postgresql://user:password@host/database") from error
        if url.get_backend_name() not in ("postgresql", "postgres"):
            raise StoreError("`database_url` must begin with postgresql://, for SQLite is used by `data_dir`. Given: "
                             f"{url.drivername}://")
        return cls(url.set(drivername="postgresql+asyncpg"))

    async def prepare(self) -> None:
        """Makes the tables, or brings them to this version. One that can't be reached now is told in the log, and is
        prepared when it is first used. Raises StoreError for a database of a newer version."""
        with suppress(StoreUnavailable, StoreFull):
            await self._prepare()

    async def _prepare(self) -> None:
        async with self._turn or nullcontext(), self._told_failures():
            if self._is_ready:
                return
            try:
                async with self._begun(_NEEDS_WRITING) as connection:
                    await connection.run_sync(migrate)
            except NewerSchema as error:
                raise StoreError(f"{self.name} {error}") from error
            self._is_ready = True

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """Opens a transaction that changes nothing. Raises StoreUnavailable."""
        await self._check()
        async with self._told_failures(), self._begun("") as connection:
            yield connection

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncConnection]:
        """Opens a transaction, which is committed unless the block raises. Raises StoreUnavailable or StoreFull; if it
        comes from the commit, nobody knows whether that has happened."""
        await self._check()
        async with self._turn or nullcontext(), self._told_failures(), self._begun(_NEEDS_WRITING) as connection:
            yield connection

    async def close(self) -> None:
        """Ends the connections."""
        await self._engine.dispose()

    async def _check(self) -> None:
        if not self._is_ready:
            try:
                await self._prepare()
            except StoreError as error:
                raise StoreUnavailable(str(error)) from error

    @asynccontextmanager
    async def _begun(self, purpose: str) -> AsyncIterator[AsyncConnection]:
        async with self._engine.connect() as connection:
            if purpose:
                await connection.execution_options(**{purpose: True})
            async with connection.begin():
                yield connection

    @asynccontextmanager
    async def _told_failures(self) -> AsyncIterator[None]:
        """Has failures of the database in the block counted, told in the log, and raised as what clients are told."""
        try:
            yield
        except (IntegrityError, ProgrammingError):
            raise
        except self._errors as error:
            self.on_failure()
            is_full = any(words in str(error) for words in _FULL)
            if time.monotonic() - self._told_at >= TOLD_SECONDS:
                self._told_at = time.monotonic()
                log.error("the database %s %s: %s", self.name, "is full" if is_full else "can't be used now",
                          _reason(error))
            raise (StoreFull if is_full else StoreUnavailable) from error


def clock_of(connection: AsyncConnection) -> ColumnElement[float]:
    """Returns the expression of the database's own time, in seconds since 1970."""
    return literal_column(_CLOCKS[connection.dialect.name])


def _connection_errors() -> tuple[type[BaseException], ...]:
    """Returns the errors of connections to PostgreSQL that SQLAlchemy passes on as they are."""
    import asyncpg

    return asyncpg.PostgresError, asyncpg.InterfaceError


def _reason(error: BaseException) -> str:
    origin = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return str(origin).partition("\n")[0] or type(origin).__name__


def _sqlite(url: URL) -> AsyncEngine:
    engine = create_async_engine(url, connect_args={"timeout": WAIT_SECONDS})

    @event.listens_for(engine.sync_engine, "connect")
    def connect(connection: Any, _: object) -> None:
        connection.isolation_level = None  # transactions begin below, not where the driver thinks best
        cursor = connection.cursor()
        for setting in ("journal_mode = WAL", "foreign_keys = ON", "synchronous = FULL"):
            cursor.execute(f"PRAGMA {setting}")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that reads first could not go on to write if another one has written meanwhile.
        needs_writing = connection.get_execution_options().get(_NEEDS_WRITING)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if needs_writing else "BEGIN")

    return engine


def _postgresql(url: URL) -> AsyncEngine:
    return create_async_engine(
        url, pool_pre_ping=True, pool_timeout=WAIT_SECONDS,
        connect_args={"timeout": WAIT_SECONDS, "command_timeout": WAIT_SECONDS})

