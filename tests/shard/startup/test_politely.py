"""Work that is nice to others, and leaves nobody so who goes on."""

import os
import threading

import pytest

from penstock.shard.startup import politely


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def in_another_thread() -> list[int]:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(niceness()))
    thread.start()
    thread.join()
    return found


def test_work_and_the_threads_that_it_starts_are_nice() -> None:
    before = niceness()
    begun: list[int] = []
    assert politely.call(in_another_thread, lambda: begun.append(niceness())) == [politely.NICENESS] == begun
    assert (niceness(), in_another_thread()) == (before, [before])


def test_its_errors_are_the_callers() -> None:
    with pytest.raises(ZeroDivisionError):
        politely.call(lambda: 1 // 0)
