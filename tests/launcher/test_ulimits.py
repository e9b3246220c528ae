"""What `ulimit` leaves is checked before anything starts."""

import logging
import os
import resource
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from penstock.launcher import ulimits
from penstock.system import cgroups
from penstock.system.arguments import InvalidArgument
from penstock.system.cgroups import Limits
from tests.launcher.conftest import Parse

FREE = (resource.RLIM_INFINITY,) * 2


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> dict[int, tuple[int, int]]:
    """The soft and hard limits that the process is taken to have."""
    limits = {resource.RLIMIT_NOFILE: (1024, 4096), resource.RLIMIT_AS: FREE}
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    monkeypatch.setattr(resource, "setrlimit", limits.__setitem__)
    return limits


def test_files_are_had_as_far_as_they_may(parse: Parse, limit, caplog) -> None:
    with caplog.at_level(logging.WARNING):
        ulimits.check(parse())
    assert limit[resource.RLIMIT_NOFILE] == (4096, 4096)
    assert caplog.messages == []


@pytest.mark.parametrize(("num_shard", "words"), [(1, "48 are needed for 1 shard, "), (4, "72 are needed for 4 ")])
def test_too_few_files(parse: Parse, limit, num_shard: int, words: str) -> None:
    limit[resource.RLIMIT_NOFILE] = (20, 20)
    with pytest.raises(InvalidArgument, match=f"`ulimit -n` allows 20 open files, and {words}"):
        ulimits.check(replace(parse(), num_shard=num_shard))
    assert limit[resource.RLIMIT_NOFILE] == (20, 20)


def test_files_for_fewer_clients_than_may_come(parse: Parse, limit, caplog) -> None:
    limit[resource.RLIMIT_NOFILE] = (32, 64)
    with caplog.at_level(logging.WARNING):
        ulimits.check(parse())
    assert caplog.messages == [
        "`ulimit -n` allows 64 open files: about 16 clients at once, though `max_concurrent_requests` is 128"]


def test_too_few_addresses(parse: Parse, limit) -> None:
    limit[resource.RLIMIT_AS] = (1 << 30, resource.RLIM_INFINITY)
    with pytest.raises(InvalidArgument, match="`ulimit -v` allows each process 1048576 KiB of addresses, and 2097152 "):
        ulimits.check(parse())
    limit[resource.RLIMIT_AS] = (2 << 30, 2 << 30)
    ulimits.check(parse())


def test_too_few_tasks(parse: Parse, limit, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's --pids-limit: each process would end, again and again, when it can start no thread."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    for num_shard, tasks in [(1, 50), (2, 64)]:
        config = replace(parse(), num_shard=num_shard)
        monkeypatch.setattr(cgroups, "limits", partial(Limits, tasks=tasks - 1, tasks_folder=Path("/cg/docker/c")))
        sentence = f"allows {tasks - 1} more processes and threads, and {tasks} are needed for {num_shard} "
        with pytest.raises(InvalidArgument, match=f"^/cg/docker/c {sentence}"):
            ulimits.check(config)
        monkeypatch.setattr(cgroups, "limits", partial(Limits, tasks=tasks, tasks_folder=Path("/cg/docker/c")))
        ulimits.check(config)


def test_tasks_grow_with_the_machine() -> None:
    assert [ulimits.tasks_needed(8, threads, cores=64) for threads in (None, 8, 1)] == [344, 344, 288]
