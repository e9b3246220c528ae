"""Triton's client and KServe's against real servers: of the demo model, and of a tiny embedder."""

import os
import subprocess
from pathlib import Path

import pytest

from penstock.bench.programs.children import free_port
from tests.clients.environments import python_of
from tests.e2e.server import serve
from tests.paths import DEMO_MODEL
from tests.tiny_embedders import make_embedder

PROGRAMS = Path(__file__).parent / "programs"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize("client", ["triton", "kserve"])
@pytest.mark.parametrize("kind", ["text", "embedder"])
def test_client(tmp_path: Path, kind: str, client: str) -> None:
    python, port = python_of(client), free_port()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    model = make_embedder(tmp_path / "model") if kind == "embedder" else DEMO_MODEL
    with serve(tmp_path, "--grpc-port", str(port), model=model) as server:
        run = subprocess.run(
            [python, PROGRAMS / f"{client}_client.py", kind, server.url, f"127.0.0.1:{port}", str(model)],
            capture_output=True, text=True, check=False, env=environment, timeout=200)
        assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"
        assert run.stdout.endswith("all passed\n"), run.stdout
