"""Runs a program that is told to end when its parent dies: `python -m penstock.cluster.tied PARENT PROGRAM …`.

Ray ends an actor's process without a word to what that has started, so the kernel has to tell.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1


def run(parent: int, program: Sequence[str]) -> None:
    """Becomes the program, which gets SIGTERM when the thread that started this process ends; never returns. Raises
    OSError if the kernel refuses, and SystemExit if `parent` is dead already."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    if os.getppid() != parent:
        sys.exit(128 + signal.SIGTERM)
    os.execv(program[0], [*program])


def command(program: Sequence[str]) -> list[str]:
    """Returns the command line that runs a program tied to this process."""
    return [sys.executable, "-P", "-m", "penstock.cluster.tied",
            str(os.getpid()), *program]


if __name__ == "__main__":
    run(int(sys.argv[1]), sys.argv[2:])
