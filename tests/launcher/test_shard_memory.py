"""The memory that outlives a shard, as the launcher holds it."""

import os

import pytest

from penstock.launcher.shard_memory import shard_memories
from penstock.system.memory_file import HEADER_BYTES


def test_what_is_discarded_leaves_the_first_page() -> None:
    with shard_memories(2) as [memory, _]:
        os.pwrite(memory.fd, b"a" * HEADER_BYTES + b"b" * 100, 0)
        for _ in range(2):
            memory.discard()
            assert os.pread(memory.fd, HEADER_BYTES + 100, 0) == b"a" * HEADER_BYTES
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(memory.fd)


def test_a_memory_that_is_empty_stays_so() -> None:
    with shard_memories(1) as [memory]:
        memory.discard()
        assert os.fstat(memory.fd).st_size == 0


def test_there_is_none_where_the_system_has_no_such_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    with shard_memories(2) as memories:
        assert memories == []
