"""Threads for work beside an event loop that do not keep the process from ending."""

import atexit
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

END_SECONDS = 2.0
"""How long the end of the process waits for work that has begun: libraries that are not Python's would abort it if
Python took their thread away."""
_BEGUN: set[Future[Any]] = set()
"""The work that runs, of all executors."""
_Work = tuple[Future[Any], Callable[[], Any]]


class DaemonThreads(Executor):
    """Runs work in up to `number` threads, which end once this object is closed or gone.

    It takes work as long as there is a thread that gives it some. The executors of `concurrent.futures` take none once
    the main thread has ended, though a program's other threads may go on to ask a model.
    """

    def __init__(self, number: int, name: str) -> None:
        self._number = number
        self._name = name
        self._works: SimpleQueue[_Work | None] = SimpleQueue()
        self._num_idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._num_threads = 0
        self._end = weakref.finalize(self, self._works.put, None)
        self._end.atexit = False  # others may end later, and have work to do for that

    def submit(self, work: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        """Has work done by the next thread that is free. Raises RuntimeError if this object is closed."""
        future: Future[Any] = Future()
        with self._lock:
            if not self._end.alive:
                raise RuntimeError(f"the threads called {self._name} have ended")
            if not self._num_idle.acquire(blocking=False) and self._num_threads < self._number:
                threading.Thread(target=_run, args=(self._works, self._num_idle), daemon=True,
                                 name=f"{self._name}_{self._num_threads}").start()
                self._num_threads += 1
            self._works.put((future, partial(work, *args, **named)))
        return future

    def close(self) -> None:
        """Ends the threads after the work that they have begun, without waiting for it; other work is cancelled."""
        with self._lock, suppress(Empty):
            self._end()
            while (work := self._works.get_nowait()) is not None:
                work[0].cancel()
        self._works.put(None)


def _run(works: "SimpleQueue[_Work | None]", num_idle: threading.Semaphore) -> None:
    while (work := works.get()) is not None:
        _do(*work)
        del work
        num_idle.release()
    works.put(None)  # for the next thread


def _do(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    _BEGUN.add(future)
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
    finally:
        _BEGUN.discard(future)


def _end_begun() -> None:
    wait([*_BEGUN], END_SECONDS)


atexit.register(_end_begun)
