"""The memory that this process may use, within the limits of its cgroups."""

import os
import resource
from pathlib import Path

from penstock.system.cgroups import PROC, limits


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
