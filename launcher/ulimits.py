"""The limits of `ulimit` and of containers, checked before anything is started: a process that meets one fails in odd
ways."""

import logging
import os
import resource

from penstock.launcher.config import LauncherConfig
from penstock.system import cgroups
from penstock.system.arguments import InvalidArgument

log = logging.getLogger(__name__)

FILES = 40
"""Open files that each process may need, beside those for each shard and for each client."""
FILES_PER_SHARD = 8
LEAST_ADDRESSES = 2 << 30
"""Bytes of addresses that a shard of the smallest model needs: its libraries and threads take most of them."""
TASKS = 24
"""Processes and threads of launcher, router and the processes of its chat templates, beside their pools. A server on
two cores was seen to have 44, 56 and 87 in all at the most, with 1, 2 and 4 shards under mixed load; the check wants
50, 64 and 94."""
TASKS_PER_SHARD = 10
"""Threads of a shard beside gRPC's and those that compute."""


def check(config: LauncherConfig) -> None:
    """Raises the limit of open files as far as it may be, for all processes; InvalidArgument if a limit is too low."""
    _check_files(config)
    _check_addresses()
    _check_tasks(config)


def _check_files(config: LauncherConfig) -> None:
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    num_shards = num_processes(config)
    needed = FILES + FILES_PER_SHARD * num_shards
    if files < needed:
        raise InvalidArgument(f"`ulimit -n` allows {files} open files, and {needed} are needed for "
                              f"{num_shards} shard{'s' * (num_shards > 1)}, more for many clients")
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    if files < needed + config.max_concurrent_requests:
        log.warning("`ulimit -n` allows %d open files: about %d clients at once, though `max_concurrent_requests` is "
                    "%d", files, files - needed, config.max_concurrent_requests)


def _check_addresses() -> None:
    addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
    if addresses != resource.RLIM_INFINITY and addresses < LEAST_ADDRESSES:
        raise InvalidArgument(f"`ulimit -v` allows each process {addresses >> 10} KiB of addresses, and "
                              f"{LEAST_ADDRESSES >> 10} are needed at least")


def _check_tasks(config: LauncherConfig) -> None:
    """Looks at the limits of cgroups, such as docker's --pids-limit. (`ulimit -u` counts what the user runs anywhere,
    and does not hold for root.)"""
    found = cgroups.limits()
    num_shards = num_processes(config)
    needed = tasks_needed(num_shards, config.threads, os.cpu_count() or 1)
    if found.tasks is not None and found.tasks < needed:
        raise InvalidArgument(f"{found.tasks_folder} allows {found.tasks} more processes and threads, and {needed} are "
                              f"needed for {num_shards} shard{'s' * (num_shards > 1)}: raise the "
                              "container's limit, such as --pids-limit")


def num_processes(config: LauncherConfig) -> int:
    """Returns how many shards there will be on this machine."""
    return 0 if config.groups else len(config.ranks)


def tasks_needed(num_shard: int, threads: int | None, cores: int) -> int:
    """Returns how many processes and threads a server may have at once on a machine with so many cores."""
    grpc = min(max(cores, 4), 16)
    executor = min(32, cores + 4)  # of asyncio, in the router
    computing = max(cores, num_shard) if threads is None else threads * num_shard
    return TASKS + executor + grpc + (TASKS_PER_SHARD + grpc) * num_shard + computing
