"""The effect of SIGTERM until the supervisor takes it. A process 1, as in a container, is sent no signal that it has no
handler for, so without one it would outlive its grace period and be killed."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

STATUS = 128 + signal.SIGTERM


def end_at_once() -> None:
    """Has SIGTERM end the process while there is nothing to end in order."""
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(STATUS))


def unwind() -> None:
    """Has SIGTERM end the process by an exception, since from now on there is something to remove."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(STATUS))


@contextmanager
def heard_in_waits() -> Iterator[None]:
    """Has SIGTERM and Ctrl-C end the process at once wherever it is in the block: Python calls handlers in the main
    thread alone, not while that waits for the address of a host, and an exception from there can leave locks of a pool
    of threads closed. Without `end_at_once` before it, it changes nothing for SIGTERM. Other threads are never called,
    and wait as they are."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    before = signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    listener = threading.Thread(target=_listen, args=(told,))
    listener.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(tell)
        listener.join()
        os.close(told)


def _listen(told: int) -> None:
    while number := os.read(told, 1):
        if number[0] in (signal.SIGTERM, signal.SIGINT):
            os._exit(128 + number[0])
