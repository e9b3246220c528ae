"""The drivers of SQLite and PostgreSQL: how they are connected to, and which of their failures mean what."""

import os
import sqlite3

from sqlalchemy import Connection, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, ProgrammingError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from penstock.router.store.postgresql_connections import PostgresqlConnections
from penstock.router.store.sqlite_connections import SqliteConnections

WAIT_SECONDS = 10
"""How long a statement, a connection or a turn to write may take."""
NEEDS_WRITING = "needs_writing"
"""The option of a connection whose next transaction is going to write."""
_SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_PARAMETERS = ("application_name", "sslcert", "sslkey", "sslmode", "sslrootcert")
"""The parameters that a URL may have: asyncpg takes them as PostgreSQL's own library does, and others for settings of
the server, which knows none of most names."""
_FILES = ("sslcert", "sslkey", "sslrootcert")
_PORT = "`database_url` must have one host, and a port from 1 to 65535 if it has one"
_FULL = ("database or disk is full", "No space left on device", "could not extend file")


class StoreError(ValueError):
    """Raised for a database that can't be used; the message is a sentence that says why."""


def parsed_url(text: str) -> URL:
    """Returns a URL of a PostgreSQL database. Raises StoreError."""
    try:
        url = make_url(text)
    except ArgumentError as error:
        raise StoreError("`database_url` must be a URL such as postgresql://user:password@host/database") from error
    except ValueError as error:
        raise StoreError(_PORT) from error
    if url.get_backend_name() not in ("postgresql", "postgres"):
        raise StoreError("`database_url` must begin with postgresql://, for SQLite is used by `data_dir`. Given: "
                         f"{url.drivername}://")
    if url.port is not None and not 0 < url.port < 1 << 16:
        raise StoreError(_PORT)
    if "@" in (url.host or ""):  # the end of a password, which is not shown
        raise StoreError("`database_url` must have one @: write those of a password as %40")
    for name in url.query:
        if name not in _PARAMETERS:
            raise StoreError(f"`database_url` may have the parameters {', '.join(_PARAMETERS)}. Given: {name}")
    mode = url.query.get("sslmode", _SSL_MODES[0])
    if mode not in _SSL_MODES:
        raise StoreError(f"`sslmode` of `database_url` must be one of {', '.join(_SSL_MODES)}. Given: {mode}")
    for name in _FILES:
        if name in url.query and not os.path.isfile(str(url.query[name])):
            raise StoreError(f"`{name}` of `database_url` must be a file. Given: {url.query[name]}")
    return url.set(drivername="postgresql+asyncpg")


def engine(url: URL) -> tuple[AsyncEngine, SqliteConnections | PostgresqlConnections]:
    """Returns the engine of a database, and the connections that it uses."""
    if url.get_backend_name() == "sqlite":
        file = SqliteConnections(url.database or "", WAIT_SECONDS)
        return _sqlite_engine(url, file), file
    connections = PostgresqlConnections(url, WAIT_SECONDS)
    return create_async_engine(url, pool_pre_ping=True, pool_timeout=WAIT_SECONDS,
                               async_creator=connections.open), connections


def _sqlite_engine(url: URL, connections: SqliteConnections) -> AsyncEngine:
    engine = create_async_engine(url, pool_timeout=WAIT_SECONDS, async_creator=connections.open)

    @event.listens_for(engine.sync_engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that reads first could not go on to write if another one has written meanwhile.
        needs_writing = connection.get_execution_options().get(NEEDS_WRITING)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if needs_writing else "BEGIN")

    return engine


def connection_errors() -> tuple[type[BaseException], ...]:
    """Returns the errors of connections to PostgreSQL that SQLAlchemy passes on as they are."""
    import asyncpg

    return asyncpg.PostgresError, asyncpg.InterfaceError


def reason(error: BaseException) -> str:
    """Returns the first line of the driver's words for an error."""
    origin = _origin(error)
    return str(origin).partition("\n")[0] or type(origin).__name__


def is_full(error: BaseException) -> bool:
    """Tells whether an error means that there is no room left."""
    return any(words in str(error) for words in _FULL)


def is_lasting(error: BaseException, is_sqlite: bool) -> bool:
    """Tells whether an error means that a database can't be used before somebody changes the settings or its rights:
    it is there, but is none, or does not let this user in."""
    if isinstance(error, ProgrammingError):
        return True
    origin = _origin(error)
    if is_sqlite:
        return getattr(origin, "sqlite_errorcode", None) in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
    import asyncpg

    return isinstance(origin.__cause__ or origin, (
        asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError,
        asyncpg.InsufficientPrivilegeError, asyncpg.exceptions.ClientConfigurationError))


def _origin(error: BaseException) -> BaseException:
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
