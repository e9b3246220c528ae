"""An event loop in a thread of its own, so that programs need none, or may have one that runs already."""

import asyncio
import threading
from collections.abc import Collection, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

CLOSED = "the LLM is closed"
END_SECONDS = 15.0
"""How long the end of all that runs may take. Shards that are killed end within milliseconds, but the system may be
busy, or a disk not answer."""


class EventLoop:
    """Runs coroutines in its own thread, which does not keep the process from ending."""

    def __init__(self, name: str) -> None:
        # Not one that the program has chosen: in this one a process may be started from any thread.
        self._loop = asyncio.SelectorEventLoop()
        self._tasks: set[asyncio.Task[Any]] = set()
        """Those that were submitted, and run."""
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Starts a coroutine; to cancel the future cancels it. Raises RuntimeError if the loop has ended."""
        noted = self._noted(work)
        if not self._is_closed:
            with suppress(RuntimeError):  # it is closed meanwhile
                running = asyncio.run_coroutine_threadsafe(noted, self._loop)
                if self._is_closed:
                    running.cancel()  # it may have come too late to be run
                return running
        noted.close()
        work.close()
        raise RuntimeError(CLOSED)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for a coroutine and returns its result. Ctrl-C cancels it. Raises RuntimeError if the loop ends."""
        running = self.submit(work)
        try:
            return running.result()
        except CancelledError:
            raise RuntimeError(CLOSED) from None
        except BaseException:
            running.cancel()
            raise

    async def result(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits as `run` does, in any event loop. Raises CancelledError only if its own task is cancelled."""
        running = self.submit(work)
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise RuntimeError(CLOSED) from None

    async def _noted(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            return await work
        finally:
            self._tasks.discard(task)

    def close(self) -> None:
        """Cancels all that runs, and waits for its end; called once."""
        self._is_closed = True
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(END_SECONDS)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(_cancel(self._tasks))
            # They have ended what they had begun; others are the engine's, which wait for nothing.
            self._loop.run_until_complete(_cancel(asyncio.all_tasks(self._loop)))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()


async def _cancel(tasks: Collection[asyncio.Task[Any]]) -> None:
    tasks = [*tasks]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def in_daemon_thread(work: Any, *arguments: Any) -> Any:
    """Returns the result of a function that may wait for long, as for a download. Its thread keeps neither the process
    nor the loop from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if not done.done():
            done.set_result(result) if error is None else done.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = work(*arguments)
        except BaseException as found:
            error = found
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="penstock-files", daemon=True).start()
    return await done
