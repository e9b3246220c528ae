"""How many threads a shard has and where they stay, as its group, its machine and its container leave it."""

import os
from pathlib import Path

import pytest

from penstock.shard import config as configs
from penstock.shard.config import ShardConfig
from penstock.system import cgroups
from penstock.system.cgroups import Limits


def share(world_size: int, rank: int = 0, threads: int | None = None) -> tuple[int, tuple[int, ...]]:
    config = ShardConfig(model=Path("m"), rank=rank, world_size=world_size, threads=threads)
    return config.num_threads, config.cpus


@pytest.fixture(autouse=True)
def quota(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No quota, and four cores of two hyperthreads each, on all of which the process may run."""
    monkeypatch.setattr(cgroups, "limits", Limits)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(configs, "_core", lambda cpu: (str(cpu // 2),))
    return monkeypatch


def test_a_group_that_uses_the_machine_stays_on_its_cores() -> None:
    assert share(1) == (4, (0, 2, 4, 6))
    assert [share(2, rank) for rank in range(2)] == [(2, (0, 2)), (2, (4, 6))]


def test_a_group_that_uses_a_part_stays_nowhere() -> None:
    assert share(3) == (1, ())
    assert share(2, threads=1) == (1, ())
    assert share(8) == (1, ())


def test_a_cpuset(quota: pytest.MonkeyPatch) -> None:
    """Of a core's hyperthreads one alone may be in it."""
    quota.setattr(os, "sched_getaffinity", lambda pid: {2, 3, 5})
    assert share(1) == (2, (2, 5))
    assert [share(2, rank) for rank in range(2)] == [(1, (2,)), (1, (5,))]


@pytest.mark.parametrize(("cpus", "world_size", "threads"), [
    (0.5, 1, 1), (1.5, 1, 1), (2.0, 1, 2), (3.9, 2, 1), (3.9, 1, 3), (100.0, 1, 4), (100.0, 2, 2)])
def test_a_quota_of_processor_time(quota: pytest.MonkeyPatch, cpus: float, world_size: int, threads: int) -> None:
    """Whole threads within it, on whatever cores there is time."""
    quota.setattr(cgroups, "limits", lambda: Limits(cpus=cpus))
    assert share(world_size) == (threads, ())


def test_threads_that_are_asked_for(quota: pytest.MonkeyPatch) -> None:
    quota.setattr(cgroups, "limits", lambda: Limits(cpus=1.5))
    assert share(1, threads=3) == (3, ())


def machines(rank: int, **settings: object) -> ShardConfig:
    """Rank `rank` of four on two machines."""
    given: dict[str, object] = {
        "model": "m", "rank": rank, "world_size": 4, "shards_here": 2, "listen": "127.0.0.1:1",
        "rendezvous": "file:///r", "exchanges": tuple(f"127.0.0.1:{10 + each}" for each in range(4))}
    return ShardConfig(**(given | settings))  # type: ignore[arg-type]


def test_the_shards_of_one_machine_share_its_cores() -> None:
    shards = [machines(rank) for rank in range(4)]
    assert [(shard.num_threads, shard.cpus) for shard in shards] == [(2, (0, 2)), (2, (4, 6))] * 2
    for shard in shards:
        shard.check()
    machines(1, shards_here=1, rendezvous="").check()


@pytest.mark.parametrize(("settings", "complaint"), [
    ({"exchanges": ("127.0.0.1:10",)}, "`exchanges` has 1 addresses for a `world_size` of 4"),
    ({"shards_here": 3}, "`shards_here` 3: every machine has as many of the 4"),
    ({"rendezvous": ""}, "`rendezvous` is needed for several shards on this machine"),
    ({"exchanges": ("10.0.0.1:1",) * 4}, "`exchanges`: nothing is exchanged with 10.0.0.1:1 in the clear"),
    ({"listen": "0.0.0.0:1"}, "no shard listens at 0.0.0.0 in the clear, where others can reach it"),
    ({"listen": "host:1"}, "no shard listens at host in the clear"), ({"listen": "here"}, "'here' is no HOST:PORT"),
    ({"shard_tls_ca": Path("/ca")}, "`shard_tls_ca`, `shard_tls_cert` and `shard_tls_key` .* given together"),
    ({f"shard_tls_{each}": Path("/no") for each in ("ca", "cert", "key")}, "cannot read /no")])
def test_what_is_not_for_others_to_reach(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        machines(1, **settings).check()
