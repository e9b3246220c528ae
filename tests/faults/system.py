"""What disturbs processes by means of the operating system: their sockets, a small disk, a limit of memory."""

import ctypes
import errno
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

_PIDFD_GETFD = 438
"""The number of the system call, the same on every architecture."""
_MEMORY_GROUPS = Path("/sys/fs/cgroup/memory")
END_SECONDS = 30.0
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


class MemoryGroup:
    """A control group, which bounds the memory of its processes and of what they start."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, pid: int) -> None:
        (self.path / "cgroup.procs").write_text(str(pid))

    def limit(self, num_bytes: int | None) -> None:
        (self.path / "memory.limit_in_bytes").write_text("-1" if num_bytes is None else str(num_bytes))

    @property
    def used_bytes(self) -> int:
        """What can't be dropped, unlike pages of files, which count as used until somebody else needs them."""
        lines = (line.split() for line in (self.path / "memory.stat").read_text().splitlines())
        return sum(int(value) for name, value in lines if name in ("total_rss", "total_shmem"))


@contextmanager
def memory_group(name: str) -> Iterator[MemoryGroup | None]:
    """Has a control group below the own one while the block runs; yields None if the machine does not allow that."""
    path = _MEMORY_GROUPS / _own_group().lstrip("/") / name
    try:
        path.mkdir()
        (path / "memory.limit_in_bytes").write_text("-1")
    except OSError:
        yield None
        return
    try:
        yield MemoryGroup(path)
    finally:
        _remove(path)


def _remove(group: Path) -> None:
    """Removes a control group, as soon as the system has done with the processes that were in it."""
    deadline = time.monotonic() + END_SECONDS
    while True:
        try:
            return group.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def _own_group() -> str:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return path
    return "/"
