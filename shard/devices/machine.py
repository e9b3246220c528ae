"""What this process may use of its machine: the memory and the processors, within the limits of its cgroups.

Containers and service managers limit a process by cgroups, versions 1 and 2; a limit of any parent counts. See the
kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.
"""

import os
import resource
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
    """What the cgroups leave. `memory` counts bytes, `cpus` processors; None where nothing limits them. The folders are
    those of the tightest limits."""

    memory: int | None = None
    memory_folder: Path | None = None
    cpus: float | None = None
    cpus_folder: Path | None = None


def limits(proc: Path = PROC) -> Limits:
    """Returns the tightest limits of the cgroups that this process is in, and of all above them."""
    memory, cpus = [], []
    for cgroup in _cgroups(proc):
        if (free := cgroup.free_memory) is not None:
            memory.append((free, cgroup.folder))
        if (number := cgroup.cpus) is not None:
            cpus.append((number, cgroup.folder))
    free, memory_folder = min(memory, default=(None, None))
    number, cpus_folder = min(cpus, default=(None, None))
    return Limits(free, memory_folder, number, cpus_folder)


def available_memory(proc: Path = PROC) -> int:
    """Returns how many bytes this process can use without swapping, without being killed for it, and without being
    refused them."""
    found = (host_memory(proc), limits(proc).memory, free_addresses(proc))
    return min(size for size in found if size is not None)


def free_addresses(proc: Path = PROC) -> int | None:
    """Returns how many bytes this process may still map; None if that is not limited, as `ulimit -v` does."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    try:
        used = int((proc / "self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return limit
    return max(0, limit - used)


def host_memory(proc: Path = PROC) -> int:
    """Returns how many bytes the machine has left, whatever the cgroups say."""
    try:
        lines = (proc / "meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def describe(cores: int, proc: Path = PROC) -> str:
    """Says in a line what was found; `cores` are those that the process may run on."""
    found = limits(proc)
    memory = f"{_size(host_memory(proc))} available"
    if found.memory is not None:
        memory += f", {_size(found.memory)} within the limit of {found.memory_folder}"
    if (addresses := free_addresses(proc)) is not None:
        memory += f", {_size(addresses)} within the limit of `ulimit -v`"
    processors = f"{cores} core{'s' * (cores != 1)}"
    if found.cpus is not None:
        processors += f", {found.cpus:g} processors' time within the limit of {found.cpus_folder}"
    return f"memory: {memory}; processors: {processors}"


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
    """Yields what is mounted and where, of the hierarchy with these controllers; version 2 has none in its name."""
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        options = set(kind[2].split(",")) if len(kind) > 2 else set()
        is_it = kind[0] == "cgroup" and set(controllers.split(",")) <= options if controllers else kind[0] == "cgroup2"
        if is_it:
            yield fields[3], Path(fields[4])


def _size(number: int) -> str:
    return f"{number / 2**30:.2f} GiB"
