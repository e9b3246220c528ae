"""No bit of an answer differs from what was recorded: the demo model on two shards, on each instruction path."""

from pathlib import Path

import pytest

from penstock.kernels import native
from tests.e2e.recorded.answers import PATHS, ask_all, differences, read, server_on


def marks(path: str) -> list[pytest.MarkDecorator]:
    """Skips a path that the processor lacks; the quick suite has only the first."""
    skip = pytest.mark.skipif(path not in native.processor_paths(), reason=f"this processor has no {path}")
    return [skip] if path == PATHS[0] else [skip, pytest.mark.slow]


@pytest.mark.parametrize("path", [pytest.param(path, marks=marks(path)) for path in PATHS])
async def test_answers_are_those_recorded(path: str, tmp_path: Path) -> None:
    with server_on(path, tmp_path) as server:
        found = await ask_all(server.url)
    different = differences(found, read()[path])
    assert not different, "\n".join(different)
