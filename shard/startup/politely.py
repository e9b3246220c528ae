"""Work of a shard that loads while those of other models serve, whose steps come first."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

NICENESS = 19
"""Of the thread: it gets a seventieth of a processor that others want, too, and all that they leave."""

_T = TypeVar("_T")


def call(work: Callable[[], _T], begin: Callable[[], None] = lambda: None) -> _T:
    """Does some work on a thread of its own, and returns its result. The thread, which `begin` prepares, and those that
    it starts are nice to all others; it ends then, for without privileges none becomes less nice again."""
    def begin_thread() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        begin()

    with ThreadPoolExecutor(1, "load", initializer=begin_thread) as thread:
        return thread.submit(work).result()
