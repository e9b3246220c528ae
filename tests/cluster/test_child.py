"""Children of Ray's actors: they end with their parent, run as fast as it may, and find ports."""

import os
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest

from penstock.cluster.child import MARK, accepts, end_marked, free_ports, reset_niceness
from penstock.cluster.config import NUM_PORTS
from penstock.cluster.tied import command
from tests.paths import ROOT
from tests.processes import runs

PARENT = """
import subprocess, sys, time
from penstock.cluster import tied
program = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: (print('told', flush=True), exit())); \
print('runs', flush=True); time.sleep(60)"
child = subprocess.Popen(tied.command([sys.executable, "-c", program]))
print(child.pid, flush=True)
time.sleep(60)
"""


def test_a_child_is_told_to_end_when_its_parent_is_killed():
    parent = subprocess.Popen([sys.executable, "-c", PARENT], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    pid = int(parent.stdout.readline())
    assert parent.stdout.readline() == "runs\n"
    parent.kill()
    assert parent.stdout.readline() == "told\n"
    parent.stdout.close()
    parent.wait()
    deadline = time.monotonic() + 10
    while runs(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_child_is_told_to_end_when_what_ties_it_is_killed():
    parent = subprocess.Popen([sys.executable, "-c", PARENT], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    guard = int(parent.stdout.readline())
    assert parent.stdout.readline() == "runs\n"
    os.kill(guard, signal.SIGKILL)
    assert parent.stdout.readline() == "told\n"
    parent.stdout.close()
    parent.kill()
    parent.wait()


@pytest.mark.parametrize(("program", "status"), [
    ("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 128 + signal.SIGKILL)])
def test_the_exit_code_is_the_programs(program, status):
    assert subprocess.run(command([sys.executable, "-c", program]), cwd=ROOT, check=False).returncode == status


def test_sigterm_is_passed_on():
    program = "import signal; print('runs', flush=True); signal.sigwait([signal.SIGUSR1])"
    child = subprocess.Popen(command([sys.executable, "-c", program]), cwd=ROOT, stdout=subprocess.PIPE)
    assert child.stdout
    assert child.stdout.readline() == b"runs\n"
    child.terminate()
    assert child.wait(10) == 128 + signal.SIGTERM
    child.stdout.close()


def test_a_child_whose_parent_is_dead_already_does_not_start():
    program = command([sys.executable, "-c", "print('runs')"])
    program[program.index(str(os.getpid()))] = "1"
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, "")


NICE = """
import os
from penstock.cluster.child import reset_niceness
os.nice(3)
try:
    reset_niceness()
    print(os.nice(0))
except PermissionError as error:
    print(error.strerror)
"""


def _niceness_of_worker(*before: str) -> str:
    return subprocess.run([*before, sys.executable, "-c", NICE], cwd=ROOT, capture_output=True, text=True,
                          check=True).stdout.strip()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a user who may undo niceness")
def test_a_worker_is_as_fast_as_its_parent():
    assert _niceness_of_worker() == str(os.nice(0))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a user who may become another")
def test_a_worker_that_would_stay_slow_says_what_to_do():
    told = _niceness_of_worker("setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice", "--reuid=65534")
    assert told == (f"Ray started this worker with niceness {os.nice(0) + 3}, and this user may not undo that: "
                    "start Ray with RAY_worker_niceness=0 in its environment")


def test_one_that_is_fast_enough_stays_as_it_is():
    before = psutil.Process().nice()
    reset_niceness()
    assert psutil.Process().nice() == before


def test_ports_in_a_row_that_nobody_listens_at():
    first = free_ports("127.0.0.1", 26000, 4)
    assert 26000 <= first <= 26000 + NUM_PORTS - 4
    with socket.create_server(("127.0.0.1", first)):
        assert accepts("127.0.0.1", first)
        assert not accepts("127.0.0.1", first + 1)


def test_ports_that_are_somebody_elses_are_left_out():
    others = range(26000, 26000 + NUM_PORTS - 1)
    with pytest.raises(OSError, match="no 2 free ports in a row from 26000"):
        free_ports("127.0.0.1", 26000, 2, others)


def test_what_a_child_has_left_is_found_by_its_mark_and_ended():
    large = "memory = bytearray(400 << 20); print('runs', flush=True); input()"  # whose end takes a while
    with subprocess.Popen([sys.executable, "-c", large], env={MARK: "a router at 1"}, text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as left:
        assert left.stdout
        assert left.stdout.readline() == "runs\n"
        assert end_marked("a router at 2") == 0
        assert end_marked("a router at 1") == 1
        assert left.poll() is not None, "it has ended already, not only been told to"
    assert left.returncode == -signal.SIGKILL
