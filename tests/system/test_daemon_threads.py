"""Threads that take work as long as anybody gives them some, and end with their owner."""

import gc
import subprocess
import sys
import threading
from concurrent.futures import Future, wait

import pytest

from penstock.system.daemon_threads import DaemonThreads
from tests.paths import ROOT

AFTER_THE_END = """
import threading, time
from penstock.system.daemon_threads import DaemonThreads
threads, begun = DaemonThreads(2, "test"), threading.Event()

def work():
    begun.set()
    time.sleep(0.1)
    print("done", flush=True)

def ask():
    threading.main_thread().join()
    print(threads.submit(sum, [1, 2]).result(), flush=True)
    threads.submit(work)
    begun.wait()

threading.Thread(target=ask).start()
"""


def is_running(name: str) -> bool:
    return any(thread.name.startswith(name) for thread in threading.enumerate())


def test_as_many_works_run_at_once_as_there_are_threads() -> None:
    threads, gate, both = DaemonThreads(2, "at-once"), threading.Event(), threading.Barrier(3)
    works = [threads.submit(lambda: (both.wait(10), gate.wait(10))) for _ in range(2)]
    third: Future[int] = threads.submit(int, "3")
    both.wait(10)
    assert not third.done()
    gate.set()
    assert third.result(10) == 3
    wait(works)
    with pytest.raises(ZeroDivisionError):
        threads.submit(divmod, 1, 0).result(10)
    threads.close()
    assert sum(thread.name.startswith("at-once") for thread in threading.enumerate()) <= 2


@pytest.mark.parametrize("is_closed", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["closed", "dropped"])
def test_threads_end_with_their_owner(is_closed: bool) -> None:
    name = f"owned-{is_closed}"
    threads, gate = DaemonThreads(1, name), threading.Event()
    ours = threads.submit(threading.current_thread).result(10)
    begun, waiting = threads.submit(gate.wait, 10), threads.submit(int)
    while not begun.running():
        pass
    if is_closed:
        threads.close()
        assert waiting.cancelled()
        with pytest.raises(RuntimeError, match=f"the threads called {name} have ended"):
            threads.submit(int)
    else:
        del threads
        gc.collect()
    gate.set()
    assert begun.result(10)
    ours.join(10)
    assert not is_running(name)


def test_other_threads_may_give_work_after_the_main_threads_end_and_what_has_begun_is_done() -> None:
    run = subprocess.run([sys.executable, "-c", AFTER_THE_END], cwd=ROOT, capture_output=True, text=True, check=False,
                         timeout=60)
    assert (run.returncode, run.stdout, run.stderr) == (0, "3\ndone\n", "")
