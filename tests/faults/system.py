"""What disturbs processes by means of the operating system: their sockets, a small disk."""

import ctypes
import errno
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

_PIDFD_GETFD = 438
"""The number of the system call, the same on every architecture."""
_CHUNK = b"\0" * 65536


def sockets_of(process: psutil.Process) -> Iterator[socket.socket]:
    """Yields each socket of another process, opened here as well; each is closed before the next. What is done to a
    connection here is done to it there."""
    handle = os.pidfd_open(process.pid)
    try:
        for link in Path(f"/proc/{process.pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                if os.readlink(link).startswith("socket:"):
                    with socket.socket(fileno=_duplicate(handle, int(link.name))) as found:
                        yield found
    finally:
        os.close(handle)


def cut(connection: socket.socket) -> None:
    """Ends a connection in both directions, for both of its ends."""
    with suppress(OSError):  # it was not connected, or no longer is
        connection.shutdown(socket.SHUT_RDWR)


def can_open_sockets() -> bool:
    """Tells whether the sockets of a child process can be opened here."""
    with socket.socket() as own, subprocess.Popen(
            ["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[own.fileno()]) as child:
        try:
            handle = os.pidfd_open(child.pid)
            os.close(_duplicate(handle, own.fileno()))
            os.close(handle)
        except OSError:
            return False
        finally:
            child.kill()
    return True


def _duplicate(handle: int, fd: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    own: int = libc.syscall(_PIDFD_GETFD, handle, fd, 0)
    if own < 0:
        code = ctypes.get_errno()
        if code == errno.EBADF:
            raise FileNotFoundError(code, "the process has closed it")
        raise OSError(code, os.strerror(code))
    return own


@contextmanager
def small_disk(folder: Path, num_bytes: int) -> Iterator[bool]:
    """Has an empty disk of this size in the folder while the block runs; yields whether the machine allows that."""
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={num_bytes},mode=700", "none", str(folder)]
    is_mounted = subprocess.run(command, capture_output=True).returncode == 0
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def filled(folder: Path) -> Iterator[None]:
    """Leaves no byte of the folder's disk free while the block runs."""
    filler = folder / "filler"
    try:
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(_CHUNK)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
        yield
    finally:
        filler.unlink(missing_ok=True)
