"""Threads that read adapters' files beside all else: whatever the files are, nobody else waits."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from penstock.system.fields import FileError

MAX_READERS = 2
MAX_SECONDS = 120.0
"""Of a read and the wait for its thread: of a gigabyte from a slow disk."""

Found = TypeVar("Found")


class Readers:
    """Runs functions that read files, two at a time, in threads of their own. A disk that does not answer holds up
    adapters alone, and the process does not wait for it when it ends."""

    def __init__(self, seconds: float = MAX_SECONDS) -> None:
        self._seconds = seconds
        self._places = asyncio.Semaphore(MAX_READERS)
        self._threads = _Threads()

    async def read(self, path: Path, work: Callable[[], Found]) -> Found:
        """Returns the result of `work`, or raises its error; FileError if it takes too long. Its thread keeps its place
        until it ends, even if nobody waits for it any more."""
        loop = asyncio.get_running_loop()

        def run() -> Found:
            try:
                return work()
            finally:
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(self._places.release)

        try:
            async with asyncio.timeout(self._seconds):
                await self._places.acquire()
                try:
                    reading = loop.run_in_executor(self._threads, run)
                except BaseException:  # there can't be one thread more
                    self._places.release()
                    raise
                return await reading
        except TimeoutError as error:
            raise FileError(path, f"it could not be read within {self._seconds:g} s") from error


class _Threads(Executor):
    """Runs each piece of work in a new thread, which ends with the process."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            try:
                result = work(*args, **named)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        future.set_running_or_notify_cancel()
        threading.Thread(target=run, name="adapter-files", daemon=True).start()
        return future
