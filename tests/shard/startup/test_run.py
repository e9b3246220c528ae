"""The memory of keys and values is had before a shard serves, or the shard says why it does not."""

import errno
import os
from collections.abc import Iterator

import pytest

from penstock.shard import progress
from penstock.shard.devices import machine
from penstock.shard.execution.kept_memory import KeptMemory
from penstock.shard.execution.kv_cache import KvMemoryError
from penstock.shard.progress import LoadProgress
from penstock.shard.startup.run import reserve_at_start
from penstock.system.memory_file import HEADER_BYTES
from penstock.system.signs import Sign

SIZE = 10 << 20                          # five parts


@pytest.fixture
def fd() -> Iterator[int]:
    fd = os.memfd_create("test")
    yield fd
    os.close(fd)


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_memory", lambda: 2 * SIZE - 1)


def begin(fd: int) -> KeptMemory:
    memory = KeptMemory(fd, "a")
    memory.map([SIZE])
    return memory


def test_the_first_shard_has_all_its_memory_and_gives_signs_meanwhile(
    fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "INTERVAL_SECONDS", 0.0)
    memory = begin(fd)
    read_end, write_end = os.pipe()
    reserve_at_start(memory, LoadProgress(write_end), 1)
    os.close(write_end)
    with open(read_end, "rb") as signs:
        assert signs.read() == Sign.ALIVE * 5
    assert os.fstat(fd).st_blocks * 512 >= SIZE
    assert memory.is_reserved


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.ENOSPC], ids=["ENOMEM", "ENOSPC"])
def test_memory_that_the_system_refuses_is_a_sentence(
    fd: int, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(fd: int, offset: int, length: int, of_system=os.posix_fallocate) -> None:  # type: ignore[no-untyped-def]
        if offset > SIZE // 2:
            raise OSError(number, os.strerror(number))
        of_system(fd, offset, length)
    monkeypatch.setattr(os, "posix_fallocate", refuse)
    message = rf"the system refuses the memory of keys and values, .* \({os.strerror(number)}\): set --kv-memory lower"
    memory = begin(fd)
    with pytest.raises(KvMemoryError, match=message):
        reserve_at_start(memory, LoadProgress(), 1)
    assert KeptMemory(fd, "a").found is None


@pytest.mark.parametrize("is_discarded", [False, True], ids=["whole", "discarded"])
def test_a_shard_that_takes_anothers_place_does_not_wait(fd: int, is_discarded: bool) -> None:
    begin(fd).seal(num_blocks=7, step_tokens=48)
    if is_discarded:
        os.ftruncate(fd, HEADER_BYTES)
    memory = begin(fd)
    reserve_at_start(memory, LoadProgress(), 1)
    assert os.fstat(fd).st_blocks * 512 < SIZE
    assert not memory.is_reserved


@pytest.mark.parametrize(("num_shards", "is_reserved"), [(1, False), (2, True)])
def test_nobody_waits_where_there_is_plenty(
    fd: int, monkeypatch: pytest.MonkeyPatch, num_shards: int, is_reserved: bool
) -> None:
    monkeypatch.setattr(machine, "available_memory", lambda: 2 * SIZE)
    memory = begin(fd)
    reserve_at_start(memory, LoadProgress(), num_shards)
    assert memory.is_reserved == is_reserved


def test_without_memory_to_keep_there_is_nothing_to_reserve() -> None:
    reserve_at_start(None, LoadProgress(), 1)
