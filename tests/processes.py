"""Processes that tests watch and signal while others may end them and take note of their end."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import psutil


def runs(pid: int) -> bool:
    """Tells whether any thread of a process runs: those of a zombie whose parent has not looked yet do not, but while
    they end one after the other the first may be dead before the last, which still holds the process's memory."""
    with suppress(OSError):
        is_zombie = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        return not is_zombie or len(os.listdir(f"/proc/{pid}/task")) > 1
    return False


def is_alive(process: psutil.Process) -> bool:
    """Tells whether this very process runs, and not a later one that was given its id."""
    return process.is_running() and runs(process.pid)


def send(process: psutil.Process, number: signal.Signals) -> None:
    """Sends a signal, unless the process has ended."""
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)
