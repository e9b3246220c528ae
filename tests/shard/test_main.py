"""What is said when a shard can't start."""

import resource

import pytest

from penstock.shard.__main__ import _sentence

NO_MEMORY = [
    MemoryError(), OSError(12, "Cannot allocate memory"),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes. Error code 12"),
    RuntimeError("can't start new thread"), RuntimeError("std::bad_alloc")]


@pytest.mark.parametrize("error", NO_MEMORY, ids=str)
def test_a_lack_of_memory_is_a_sentence(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY,) * 2)
    assert _sentence(error) == f"there is not enough memory: {str(error) or 'MemoryError'}"
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (3 << 29, resource.RLIM_INFINITY))
    assert str(_sentence(error)).startswith("there is not enough memory within the 1.50 GiB of `ulimit -v`: ")


def test_other_errors() -> None:
    assert _sentence(ValueError("a setting")) == "a setting"
    assert _sentence(PermissionError(13, "Permission denied")) == "[Errno 13] Permission denied"
    assert _sentence(RuntimeError("our own")) is None
    assert _sentence(KeyError("our own")) is None
