"""The launcher that an actor of Ray runs as its child process."""

import errno
import os
import random
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from penstock.cluster import tied
from penstock.cluster.config import NUM_PORTS

TRIES = 50
MARK = "PENSTOCK_RAY_CHILD"
"""The variable in the environment of a child, and of all that it starts, by which `end_marked` finds them."""
END_SECONDS = 30.0
"""How long the kernel may take to end a process that was killed."""


class Child:
    """A run of `penstock` with some arguments, from the moment it is made. When the thread that made it ends, or
    Ray kills this process's children, it gets SIGTERM: what runs is finished or moved."""

    def __init__(self, arguments: Sequence[str], mark: str = "") -> None:
        self._process = subprocess.Popen(
            tied.command([sys.executable, "-P", "-m", "penstock", *arguments]), stdin=subprocess.DEVNULL,
            env={**os.environ, MARK: mark})
        self.is_stopping = False

    @property
    def status(self) -> int | None:
        """The exit code, more than 128 for a signal to the launcher, negative for one to what ties it to this process;
        None while it runs."""
        return self._process.poll()

    def stop(self) -> None:
        """Has it end in order."""
        if self.status is None and not self.is_stopping:
            self._process.send_signal(signal.SIGTERM)
        self.is_stopping = True


def end_marked(mark: str) -> int:
    """Kills all processes on this machine that children with this mark have left, and waits until they have ended, for
    a moment later somebody else listens at their port; returns how many there were. Raises TimeoutError if the kernel
    does not end one."""
    entry = f"{MARK}={mark}".encode()
    with ExitStack() as stack:
        killed = []
        for folder in Path("/proc").glob("[0-9]*"):
            # It may end meanwhile, or be somebody else's.
            with suppress(OSError):
                if entry in (folder / "environ").read_bytes().split(b"\0"):
                    process = os.pidfd_open(int(folder.name))
                    stack.callback(os.close, process)
                    signal.pidfd_send_signal(process, signal.SIGKILL)
                    killed.append(process)
        for process in killed:
            ended = select.poll()
            ended.register(process, select.POLLIN)
            if not ended.poll(END_SECONDS * 1000):
                raise TimeoutError(f"a killed process of the {mark} has not ended after {END_SECONDS:.0f} s")
    return len(killed)


def reset_niceness() -> None:
    """Gives this process the priority of Ray's own. Ray starts workers with niceness 15, and beside anything else that
    computes a shard of that would be several times as slow. Raises PermissionError, which says what to do."""
    ours, wanted = os.getpriority(os.PRIO_PROCESS, 0), os.getpriority(os.PRIO_PROCESS, os.getppid())
    if ours <= wanted:
        return
    try:
        os.setpriority(os.PRIO_PROCESS, 0, wanted)
    except PermissionError as error:
        raise PermissionError(errno.EPERM, f"Ray started this worker with niceness {ours}, and this user may not undo "
                              "that: start Ray with RAY_worker_niceness=0 in its environment") from error


def free_ports(host: str, first: int, number: int, others: range = range(0)) -> int:
    """Returns the first of so many ports in a row, from `first` on, at which nobody listens, and none of which is among
    `others`. They are drawn, so that several groups that start together differ. Raises OSError if none were found."""
    for _ in range(TRIES):
        start = first + random.randrange(NUM_PORTS - number + 1)
        if all(port not in others and _is_free(host, port) for port in range(start, start + number)):
            return start
    raise OSError(errno.EADDRINUSE, f"no {number} free ports in a row from {first} to {first + NUM_PORTS - 1}")


def _is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError:
            return False
    return True


def accepts(host: str, port: int) -> bool:
    """Tells whether somebody listens at a port."""
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return False
    return True
