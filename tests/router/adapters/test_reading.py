from pathlib import Path
from threading import Thread

import pytest

from penstock.router.adapters.reading import MAX_READERS, Readers


async def test_a_thread_that_can_not_be_started_keeps_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    readers = Readers(seconds=5)
    with monkeypatch.context() as patched:
        patched.setattr(Thread, "start", refuse)
        for _ in range(MAX_READERS + 1):
            with pytest.raises(RuntimeError, match="can't start"):
                await readers.read(Path("a"), lambda: 1)
    assert await readers.read(Path("a"), lambda: 2) == 2
