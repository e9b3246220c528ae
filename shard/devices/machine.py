"""The part of its machine that this process may use: the memory and the processors, within the limits of its cgroups.
"""

from pathlib import Path

from penstock.system.cgroups import PROC, limits
from penstock.system.memory import available_memory, free_addresses, host_memory

__all__ = ["available_memory", "describe", "free_addresses", "host_memory"]


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


def _size(number: int) -> str:
    return f"{number / 2**30:.2f} GiB"
