"""KV memory that a shard leaves to the one that takes its place."""

import errno
import mmap
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from penstock.shard.execution.kept_memory import KeptMemory
from penstock.system.memory_file import HEADER_BYTES

SIZES = [100_000, 5000]


@pytest.fixture
def fd() -> Iterator[int]:
    fd = os.memfd_create("test")
    yield fd
    os.close(fd)


def leave(fd: int, layout: str = "a") -> tuple[str, list[torch.Tensor]]:
    """A shard that has written something; the name of its memory, and what it wrote."""
    memory = KeptMemory(fd, layout)
    tensors = memory.map(SIZES)
    written = [torch.randint(0, 256, (size,), dtype=torch.uint8) for size in SIZES]
    for tensor, values in zip(tensors, written, strict=True):
        tensor.copy_(values)
    return memory.seal(num_blocks=7, step_tokens=48).id, written


def test_the_next_shard_finds_what_was_written(fd: int) -> None:
    id, written = leave(fd)
    memory = KeptMemory(fd, "a")
    assert memory.found is not None
    assert (memory.found.is_whole, memory.found.num_blocks, memory.found.step_tokens) == (True, 7, 48)
    for tensor, values in zip(memory.map(SIZES), written, strict=True):
        assert torch.equal(tensor, values)
        assert tensor.data_ptr() % 4096 == 0
    assert memory.seal(7, 48).id == id


def test_a_shard_of_another_layout_begins_with_zeros(fd: int) -> None:
    id, _ = leave(fd)
    memory = KeptMemory(fd, "b")
    assert memory.found is None
    assert not any(tensor.any() for tensor in memory.map(SIZES))
    assert memory.seal(7, 48).id != id


def test_a_shard_that_died_before_it_was_ready_leaves_nothing(fd: int) -> None:
    KeptMemory(fd, "a").map(SIZES)[0].fill_(1)
    memory = KeptMemory(fd, "a")
    assert memory.found is None
    assert not memory.map(SIZES)[0].any()


def test_of_a_memory_that_was_discarded_the_size_is_left(fd: int) -> None:
    id, _ = leave(fd)
    os.ftruncate(fd, HEADER_BYTES)
    memory = KeptMemory(fd, "a")
    assert memory.found is not None
    assert (memory.found.is_whole, memory.found.num_blocks, memory.found.step_tokens) == (False, 7, 48)
    assert not memory.map(SIZES)[0].any()
    assert memory.seal(7, 48).id != id
    found = KeptMemory(fd, "a").found
    assert found is not None
    assert found.is_whole


def test_the_size_of_the_first_is_kept_though_a_later_shard_had_less(fd: int) -> None:
    leave(fd)
    os.ftruncate(fd, HEADER_BYTES)
    KeptMemory(fd, "a").map(SIZES)       # by a shard that dies before it is ready
    memory = KeptMemory(fd, "a")
    assert memory.found is not None
    assert (memory.found.is_whole, memory.found.first_blocks) == (False, 7)
    memory.map([SIZES[0] // 2])
    memory.seal(num_blocks=3, step_tokens=48)
    found = KeptMemory(fd, "a").found
    assert found is not None
    assert (found.is_whole, found.num_blocks, found.first_blocks) == (True, 3, 7)


def test_memory_is_new_where_other_ranks_have_lost_theirs(fd: int) -> None:
    id, _ = leave(fd)
    memory = KeptMemory(fd, "a")
    memory.map(SIZES)
    memory.forget()
    found = KeptMemory(fd, "a").found
    assert found is not None
    assert (found.is_whole, found.first_blocks) == (False, 7)
    assert memory.seal(3, 48).id != id
    assert memory.seal(3, 48).first_blocks == 7


@pytest.mark.parametrize("page", [b"\xff\xfe", b"{", b"[" * HEADER_BYTES, b"7", b'{"colour": 1}'],
                         ids=["no text", "cut off", "too deep", "a number", "other fields"])
def test_a_spoilt_first_page_is_none(fd: int, page: bytes) -> None:
    leave(fd)
    os.pwrite(fd, page.ljust(HEADER_BYTES), 0)
    memory = KeptMemory(fd, "a")
    assert memory.found is None
    assert not any(tensor.any() for tensor in memory.map(SIZES))


def test_the_first_page_is_out_of_reach_of_what_is_written_to_the_memory(fd: int) -> None:
    memory = KeptMemory(fd, "a")
    memory.map(SIZES)
    memory.seal(7, 48)
    memory._map[:] = b"\xff" * len(memory._map)
    found = KeptMemory(fd, "a").found
    assert found is not None
    assert found.is_whole


def refuse(*_: object) -> None:
    raise OSError(errno.EINVAL, "Invalid argument")


def test_a_system_without_huge_pages(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Mapping(mmap.mmap):
        madvise = refuse
    monkeypatch.setattr(mmap, "mmap", Mapping)
    id, written = leave(fd)
    memory = KeptMemory(fd, "a")
    assert all(map(torch.equal, memory.map(SIZES), written))
    assert memory.seal(7, 48).id == id


def reserved_bytes(fd: int) -> int:
    return os.fstat(fd).st_blocks * 512


def test_all_of_it_is_reserved(fd: int) -> None:
    memory = KeptMemory(fd, "a")
    [tensor] = memory.map([10 << 20])
    before, told = reserved_bytes(fd), []
    memory.reserve(lambda: told.append(reserved_bytes(fd)))
    assert reserved_bytes(fd) >= 10 << 20 > before
    assert told == sorted(told)
    assert len(told) == 5
    assert not tensor.any()


def test_nothing_is_reserved_once_it_is_closed(fd: int) -> None:
    memory = KeptMemory(fd, "a")
    memory.map([10 << 20])
    memory.reserve(memory.close)
    assert 0 < reserved_bytes(fd) < 10 << 20


def in_idle_time(memory: KeptMemory) -> None:
    """As far as the memory goes: the thread's end is waited for."""
    memory.reserve_in_idle_time()
    for thread in threading.enumerate():
        if thread.name == "reserve":
            thread.join()


def test_it_is_reserved_in_time_that_nothing_else_wants(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    policies = []
    monkeypatch.setattr(os, "posix_fallocate", lambda *_: policies.append(os.sched_getscheduler(0)))
    before = os.sched_getscheduler(0)
    memory = KeptMemory(fd, "a")
    memory.map([4 << 20])
    in_idle_time(memory)
    assert policies == [os.SCHED_IDLE] * 2
    assert os.sched_getscheduler(0) == before


def test_a_system_that_refuses_idle_time(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = KeptMemory(fd, "a")
    memory.map([10 << 20])
    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    in_idle_time(memory)
    assert reserved_bytes(fd) >= 10 << 20


def test_a_shard_that_takes_anothers_place_serves_with_what_it_gets(
    fd: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    memory = KeptMemory(fd, "a")
    memory.map(SIZES)
    monkeypatch.setattr(os, "posix_fallocate", refuse)
    in_idle_time(memory)
    assert caplog.messages == ["the KV memory is not reserved: Invalid argument"]
    assert not memory.is_reserved


def test_a_file_that_is_too_large_is_an_error(tmp_path: Path) -> None:
    with (tmp_path / "memory").open("wb+") as file, pytest.raises(OSError, match=r"File too large|Invalid argument"):
        KeptMemory(file.fileno(), "a").map([1 << 62])
