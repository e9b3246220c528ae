"""An event loop whose time jumps to the next thing that happens: no socket, no thread, and nobody who waits."""

import asyncio
import heapq
import logging
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any

BEGIN = 1000.0
THREAD_SECONDS = 0.002
"""The longest that work in another thread takes, but for some that takes twenty times as long."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs what is ready in its order; while nothing is, it is at once as late as the next timer. What is given to a
    thread runs on the loop, some moments later: in the order in which it was given, if the executor has one thread."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.now = BEGIN
        self._random = random.Random(seed)
        self._busy_until: dict[Executor, float] = {}

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled
        if not ready and not self._stopping:
            while scheduled and scheduled[0]._cancelled:
                heapq.heappop(scheduled)._scheduled = False
            assert scheduled, "nothing will ever happen again"
            self.now = max(self.now, scheduled[0]._when)
        while scheduled and scheduled[0]._when <= self.now:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            ready.append(handle)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _write_to_self(self) -> None:
        """Nobody waits in a system call."""

    def run_in_executor(
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        future = self.create_future()
        most = THREAD_SECONDS * (20 if self._random.random() < 0.2 else 1)
        when = self.now + self._random.random() * most
        if executor is not None:
            if getattr(executor, "_shutdown", False):
                raise RuntimeError("cannot schedule new futures after shutdown")
            when = self._busy_until[executor] = max(when, self._busy_until.get(executor, 0.0) + 1e-6)
        self.call_at(when, _fulfil, future, func, *args)
        return future


def _fulfil(future: "asyncio.Future[Any]", func: Callable[..., Any], *args: Any) -> None:
    """Runs what a thread does, also where nobody waits for it any more."""
    try:
        result = func(*args)
    except Exception as error:
        if not future.cancelled():
            future.set_exception(error)
    else:
        if not future.cancelled():
            future.set_result(result)


@contextmanager
def virtual_time(seed: int) -> Iterator[VirtualLoop]:
    """Makes a loop; while the context lasts, `time` tells its time, and nothing is logged."""
    loop = VirtualLoop(seed)
    real = time.monotonic, time.time_ns
    time.monotonic, time.time_ns = loop.time, lambda: int(loop.now * 1e9)
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield loop
    finally:
        logging.disable(level)
        time.monotonic, time.time_ns = real
        _end_all(loop)
        loop.close()


def _end_all(loop: VirtualLoop) -> None:
    for _ in range(5):  # some begin others while they end
        tasks = asyncio.all_tasks(loop)
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.wait(tasks, timeout=5.0))
        for task in tasks:
            if task.done() and not task.cancelled():
                task.exception()  # or asyncio complains of it
