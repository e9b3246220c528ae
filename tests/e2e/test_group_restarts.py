"""A group that is killed again and again: each time a whole new one takes its place, and nothing of the old stays."""

import asyncio
import errno
import os
import signal
import socket
from pathlib import Path

import psutil
import pytest

from tests.e2e.client import many_clients, stream
from tests.e2e.server import serve

SOURCE = "import os\n\n\ndef walk(path):\n"


def most(counts: list[tuple[int, ...]]) -> tuple[int, ...]:
    """The highest of each kind."""
    return tuple(max(kind) for kind in zip(*counts, strict=True))


def num_threads(process: psutil.Process) -> int:
    """Returns the number of a process's threads, but for those of gRPC's own pool, which grows by its load."""
    names = [path.read_text().strip() for path in Path(f"/proc/{process.pid}/task").glob("*/comm")]
    return sum(name != "event_engine" for name in names)


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(1800)
async def test_many_restarts_leave_nothing_behind(tmp_path: Path, every_case: bool) -> None:
    num_restarts = 100 if every_case else 14
    shared_memory = set(os.listdir("/dev/shm"))
    generations: list[list[psutil.Process]] = []
    counts: list[tuple[int, ...]] = []
    with serve(tmp_path, "--num-shard", "2") as server:
        launcher, [router] = psutil.Process(server.process.pid), server.children("router")
        [private] = (tmp_path / "tmp").iterdir()
        async with many_clients() as session:
            undisturbed = await stream(session, server.url, SOURCE, max_new_tokens=4)
            for number in range(num_restarts + 1):
                if number:
                    os.kill(server.shards()[number % 2].pid, signal.SIGKILL)
                    while any(shard.is_running() for shard in generations[-1]):
                        await asyncio.sleep(0.01)
                assert await stream(session, server.url, SOURCE, max_new_tokens=4) == undisturbed
                generations.append(server.children("shard"))
                assert len(generations[-1]) == 2
                assert {path.name for path in private.iterdir()} == {"shard-0", "shard-1"}
                counts.append((launcher.num_fds(), num_threads(launcher), router.num_fds(), num_threads(router)))
        assert server.children("router") == [router]
        [renderer] = server.children("router.chat.sandbox")
        assert set(launcher.children(recursive=True)) == {router, renderer, *generations[-1]}
        for early, late in zip(most(counts[:8]), most(counts[-5:]), strict=True):
            assert late <= early, counts
    everyone = {shard for generation in generations for shard in generation}
    assert len(everyone) == 2 * (num_restarts + 1)
    assert not [shard for shard in everyone if shard.is_running()]
    assert set(os.listdir("/dev/shm")) <= shared_memory
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", server.port)) == errno.ECONNREFUSED
