"""The limits of the cgroups that this process is in, of versions 1 and 2; those of any parent count.

Containers and service managers limit a process by them: its memory, its processors' time, and how many processes and
threads it starts. See the kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

UNLIMITED = 1 << 60                      # version 1 writes nearly 2^63 where there is no limit
PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One of the cgroups that the process is in: its folder, and `files`, those of the version that it is of."""

    folder: Path
    files: "Files"

    def number(self, name: str) -> int | None:
        """Returns the number in a file; None if the file is not there, or says that there is no limit."""
        try:
            text = (self.folder / name).read_text().split()[0]
        except (OSError, IndexError):
            return None
        value = int(text) if text.lstrip("-").isdigit() else -1
        return value if 0 <= value < UNLIMITED else None

    @property
    def free_memory(self) -> int | None:
        """The bytes that may still be used, those included that the system can take back from its cache of files."""
        limits = [limit for name in self.files.memory_limits if (limit := self.number(name)) is not None]
        used = self.number(self.files.memory_used)
        return max(0, min(limits) - used + self._cached) if limits and used is not None else None

    @property
    def free_tasks(self) -> int | None:
        """How many more processes and threads may be started; None if that is not limited."""
        limit, used = self.number("pids.max"), self.number("pids.current")
        return max(0, limit - used) if limit is not None and used is not None else None

    @property
    def _cached(self) -> int:
        try:
            lines = dict(line.split() for line in (self.folder / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):
            return 0
        return int(lines.get(self.files.cached, 0))

    @property
    def cpus(self) -> float | None:
        """How many processors' time it may use; None if that is not limited."""
        try:
            words = " ".join((self.folder / name).read_text() for name in self.files.cpu).split()
        except OSError:
            return None
        quota, period = words[:2]
        return int(quota) / int(period) if quota.isdigit() and int(quota) > 0 else None


@dataclass(frozen=True, slots=True)
class Files:
    """The names of a version's files. The processor's quota and its period are one file, or two."""

    memory_limits: tuple[str, ...]
    memory_used: str
    cached: str
    cpu: tuple[str, ...]


VERSION_1 = Files(("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file",
                  ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
VERSION_2 = Files(("memory.max", "memory.high"), "memory.current", "inactive_file", ("cpu.max",))


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the cgroups. `memory` counts bytes, `cpus` processors, `tasks` processes and threads; None where
    nothing limits them. The folders are those of the tightest limits."""

    memory: int | None = None
    memory_folder: Path | None = None
    cpus: float | None = None
    cpus_folder: Path | None = None
    tasks: int | None = None
    tasks_folder: Path | None = None


def limits(proc: Path = PROC) -> Limits:
    """Returns the tightest limits of the cgroups that this process is in, and of all above them."""
    found = list(_cgroups(proc))
    memory = [(free, cgroup.folder) for cgroup in found if (free := cgroup.free_memory) is not None]
    cpus = [(number, cgroup.folder) for cgroup in found if (number := cgroup.cpus) is not None]
    tasks = [(free, cgroup.folder) for cgroup in found if (free := cgroup.free_tasks) is not None]
    none = None, None
    return Limits(*min(memory, default=none), *min(cpus, default=none), *min(tasks, default=none))


def _cgroups(proc: Path) -> Iterator[Cgroup]:
    """Yields the cgroups of the process, of both versions, each with all its parents that can be seen."""
    try:
        memberships = (proc / "self/cgroup").read_text().splitlines()
        mounts = (proc / "self/mountinfo").read_text().splitlines()
    except OSError:
        return
    for membership in memberships:
        _, controllers, path = membership.split(":", 2)
        files = VERSION_1 if controllers else VERSION_2
        for root, mount in _mounts(mounts, controllers):
            if path == root or path.startswith(root.rstrip("/") + "/") or root == "/":
                inner = mount / path[len(root.rstrip("/")):].lstrip("/")
            else:                        # the process sees its own part of the tree alone, whose top is the mount
                inner = mount
            folder = inner
            while folder.is_relative_to(mount):
                yield Cgroup(folder, files)
                folder = folder.parent


def _mounts(lines: list[str], controllers: str) -> Iterator[tuple[str, Path]]:
    """Yields the mounted folders and their places, of the hierarchy with these controllers; version 2 has none in its
    name."""
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        options = set(kind[2].split(",")) if len(kind) > 2 else set()
        is_it = kind[0] == "cgroup" and set(controllers.split(",")) <= options if controllers else kind[0] == "cgroup2"
        if is_it:
            yield fields[3], Path(fields[4])
