"""No bit of an answer differs from what was recorded: the demo model on a shard or two, on each instruction path."""

from pathlib import Path

import pytest

from penstock.kernels import native
from tests.e2e.recorded.answers import PATHS, ask_all, differences, numerics, read, server_on
from tests.e2e.server import Server


async def test_answers_are_those_recorded_whatever_else_is_asked(server: Server) -> None:
    """On the first path, two shards, and a server that has answered others."""
    if f"-{PATHS[0]}/" not in numerics(server):
        pytest.skip(f"this processor has no {PATHS[0]}, or other kernels are chosen")
    different = differences(await ask_all(server.url), read()[PATHS[0]])
    assert not different, "\n".join(different)


@pytest.mark.slow
@pytest.mark.parametrize(("path", "num_shard"), [
    pytest.param(path, num_shard, marks=pytest.mark.skipif(
        path not in native.processor_paths(), reason=f"this processor has no {path}"))
    for path, num_shard in [(PATHS[0], 1), *((path, 2) for path in PATHS)]])
async def test_answers_are_those_recorded(path: str, num_shard: int, tmp_path: Path) -> None:
    with server_on(path, tmp_path, num_shard) as server:
        found = await ask_all(server.url)
    different = differences(found, read()[path])
    assert not different, "\n".join(different)
