"""Runs a program that is told to end when its parent dies: `python -m penstock.cluster.tied PARENT PROGRAM …`.

Ray ends an actor's process without a word to what that has started, or kills its children, so the kernel has to tell:
this process stands between the actor and the program, which gets SIGTERM when either of the two dies.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1


def run(parent: int, program: Sequence[str]) -> int:
    """Runs the program, passes SIGTERM on, and returns its exit code, 128 more than the number of a signal. Raises
    OSError if the kernel refuses. Ends at once if `parent` is dead already."""
    _tie(parent)
    guard = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    pid = os.fork()
    if pid == 0:
        _tie(guard)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        os.execv(program[0], [*program])
    signal.signal(signal.SIGTERM, lambda number, frame: os.kill(pid, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code if code >= 0 else 128 - code


def _tie(parent: int) -> None:
    """Has this process get SIGTERM when the thread of its parent that started it ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    if os.getppid() != parent:
        os._exit(128 + signal.SIGTERM)


def command(program: Sequence[str]) -> list[str]:
    """Returns the command line that runs a program tied to this process."""
    return [sys.executable, "-P", "-m", "penstock.cluster.tied", str(os.getpid()), *program]


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1]), sys.argv[2:]))
