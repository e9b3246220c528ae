"""Real clients against a real server: the demo model on two shards."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.environments import python_of
from tests.e2e.server import Server, serve

PROGRAMS = Path(__file__).parent / "programs"
CLIENTS = {
    "text_generation_client.py": "text-generation", "huggingface_hub_client.py": "huggingface-hub",
    "openai_client.py": "openai", "anthropic_client.py": "anthropic", "langchain_client.py": "langchain",
    "langchain_huggingface_client.py": "langchain-huggingface",
}
"""By program, the environment that it runs in."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    flags = ["--num-shard", "2", "--enable-prefill-logprobs", "--max-client-batch-size", "8"]
    with serve(tmp_path_factory.mktemp("clients"), *flags) as server:
        yield server


@pytest.mark.parametrize("program", CLIENTS)
def test_client(server: Server, program: str) -> None:
    python = python_of(CLIENTS[program])
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run = subprocess.run([python, "-W", "error::DeprecationWarning:__main__", PROGRAMS / program, server.url],
                         capture_output=True, text=True, check=False, env=environment, timeout=300)
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"
    assert run.stdout.endswith("all passed\n"), run.stdout
