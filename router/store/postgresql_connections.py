"""Connections to a PostgreSQL database."""

from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from sqlalchemy.engine import URL

if TYPE_CHECKING:
    import asyncpg


class PostgresqlConnections:
    """Opens connections, and closes those that are left: SQLAlchemy forgets connections that are in use when it ends.
    """

    def __init__(self, url: URL, wait_seconds: float) -> None:
        self._url = url.set(drivername="postgresql").render_as_string(hide_password=False)
        self._wait_seconds = wait_seconds
        self._opened: WeakSet[asyncpg.Connection[Any]] = WeakSet()

    async def open(self, *_: Any, **__: Any) -> "asyncpg.Connection[Any]":
        """Returns a new connection. Raises asyncpg.PostgresError, asyncpg.InterfaceError or OSError."""
        import asyncpg

        connection = await asyncpg.connect(self._url, timeout=self._wait_seconds, command_timeout=self._wait_seconds)
        self._opened.add(connection)
        return connection

    async def close(self) -> None:
        """Closes all connections, also those in use."""
        for connection in list(self._opened):
            connection.terminate()
