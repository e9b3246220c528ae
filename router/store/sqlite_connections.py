"""Connections to a SQLite file, each with a thread of its own, that are closed whatever is cancelled."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from weakref import WeakSet

import aiosqlite

_SETTINGS = ("journal_mode = WAL", "foreign_keys = ON", "synchronous = FULL")


class SqliteConnections:
    """Opens connections to a file, and closes those that are left: SQLAlchemy forgets connections that are in use, or
    are still being closed, when it ends."""

    def __init__(self, file: str, wait_seconds: float) -> None:
        self._file = file
        self._wait_seconds = wait_seconds
        self._opened: WeakSet[_Connection] = WeakSet()

    async def open(self) -> aiosqlite.Connection:
        """Returns a new connection. Raises sqlite3.Error."""
        connection = _Connection(lambda: _open(self._file, self._wait_seconds))
        self._opened.add(connection)
        return await connection

    async def close(self) -> None:
        """Closes all connections, also those in use."""
        await asyncio.gather(*(connection.close() for connection in list(self._opened)))


class _Connection(aiosqlite.Connection):
    """Is closed once, whoever asks for it and is cancelled meanwhile: aiosqlite's own waits forever for its thread if
    it is told to stop while it is being closed, and leaves a file open whose opening was cancelled."""

    def __init__(self, open_file: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(self._keep_file, iter_chunk_size=64)
        self._open_file = open_file
        self._kept: sqlite3.Connection | None = None
        self._end: asyncio.Future[object] | None = None
        self._thread.daemon = True

    def stop(self) -> asyncio.Future[object] | None:
        """Closes the file when its statements have ended, and returns the end of the thread. Returns None where no
        event loop runs."""
        if self._end is None:
            self._tx.put_nowait((None, self._close_file))
            self._end = super().stop()
        return self._end

    async def close(self) -> None:
        end = self.stop()
        if end is not None:
            await asyncio.shield(end)

    def _keep_file(self) -> sqlite3.Connection:
        self._kept = self._open_file()
        return self._kept

    def _close_file(self) -> None:
        if self._kept is not None:
            self._kept.close()


class _File(sqlite3.Connection):
    """Ends its transaction when it is closed. SQLite itself keeps a connection, and its lock, until all statements are
    gone, and one that was interrupted may be known to the exception that did so."""

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self.rollback()
        super().close()


def _open(file: str, wait_seconds: float) -> sqlite3.Connection:
    """Returns a connection whose transactions begin where SQLAlchemy says, not where the driver thinks best. Its
    statements wait so long for the transactions of others."""
    connection = sqlite3.connect(file, timeout=wait_seconds, factory=_File, isolation_level=None,
                                 check_same_thread=False)
    try:
        for setting in _SETTINGS:
            connection.execute(f"PRAGMA {setting}")
    except BaseException:
        connection.close()
        raise
    return connection
