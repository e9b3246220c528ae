"""Real cgroups that limit the memory of what a test starts."""

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

VERSION_1, VERSION_2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
JOIN = "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); os.execvp(sys.argv[2], sys.argv[2:])"
REMOVE_SECONDS = 20.0


class MemoryCgroup:
    """A cgroup of either version, which `memory_cgroup` or `unlimited_cgroup` makes."""

    def __init__(self, folder: Path, is_version_1: bool) -> None:
        self.folder = folder
        self._is_version_1 = is_version_1
        self._limit = folder / ("memory.limit_in_bytes" if is_version_1 else "memory.max")
        self._used = folder / ("memory.usage_in_bytes" if is_version_1 else "memory.current")
        self._events = folder / ("memory.oom_control" if is_version_1 else "memory.events")

    def set_limit(self, num_bytes: int) -> None:
        self._limit.write_text(str(num_bytes))

    def unlimit(self) -> None:
        self._limit.write_text("-1" if self._is_version_1 else "max")

    @property
    def charged(self) -> int:
        """The bytes that count for the limit. Under a lower one the kernel kills at once, without anybody's asking."""
        return int(self._used.read_text())

    @property
    def used(self) -> int:
        """The bytes in use, without the cache of files, which the kernel takes back when others need the memory."""
        lines = (line.split() for line in (self.folder / "memory.stat").read_text().splitlines())
        numbers = {name: int(number) for name, number in lines}
        files = numbers["cache" if self._is_version_1 else "file"]  # which `shmem` is part of
        return self.charged - files + numbers["shmem"]

    @property
    def num_killed(self) -> int:
        """How many processes the kernel has killed for want of memory."""
        lines = dict(line.split() for line in self._events.read_text().splitlines())
        return int(lines["oom_kill"])

    def command(self, command: Sequence[str]) -> list[str]:
        """Returns the command that runs `command` inside; the process keeps its id."""
        return [sys.executable, "-c", JOIN, str(self.folder / "cgroup.procs"), *command]


@contextmanager
def memory_cgroup(num_bytes: int) -> Iterator[MemoryCgroup]:
    """Makes a cgroup with so much memory; skips the test where none can be made."""
    with unlimited_cgroup() as cgroup:
        if cgroup is None:
            pytest.skip("no cgroup whose memory is limited can be made here")
        cgroup.set_limit(num_bytes)
        yield cgroup


@contextmanager
def unlimited_cgroup() -> Iterator[MemoryCgroup | None]:
    """Makes a cgroup whose memory can be limited later; yields None where none can be made."""
    is_version_1 = VERSION_1.is_dir()
    try:
        folder = Path(tempfile.mkdtemp(prefix="penstock-test-", dir=VERSION_1 if is_version_1 else VERSION_2))
    except OSError:
        yield None
        return
    try:
        cgroup = MemoryCgroup(folder, is_version_1)
        yield cgroup if _can_be_limited(cgroup) else None
    finally:
        _remove(folder)


def _can_be_limited(cgroup: MemoryCgroup) -> bool:
    try:
        cgroup.unlimit()
    except OSError:
        return False
    return True


def _remove(folder: Path) -> None:
    """Removes the cgroup once its last process, which may have been killed just now, is gone."""
    deadline = time.monotonic() + REMOVE_SECONDS
    while True:
        try:
            return folder.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.02)
