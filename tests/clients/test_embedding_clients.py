"""Clients of vectors and scores against real servers: of a tiny embedder, and of a tiny reranker."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.environments import python_of
from tests.e2e.server import serve
from tests.tiny_embedders import make_embedder, make_reranker

PROGRAM = Path(__file__).parent / "programs" / "embedding_clients.py"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize(("kind", "make"), [("embedder", make_embedder), ("reranker", make_reranker)])
def test_client(tmp_path: Path, kind: str, make: Callable[[Path], Path]) -> None:
    python = python_of("embeddings")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with serve(tmp_path, model=make(tmp_path / "model")) as server:
        run = subprocess.run([python, "-W", "error::DeprecationWarning:__main__", PROGRAM, kind, server.url],
                             capture_output=True, text=True, check=False, env=environment, timeout=200)
        assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"
        assert run.stdout.endswith("all passed\n"), run.stdout
