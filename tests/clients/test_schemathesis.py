"""Schemathesis sends a running server what its OpenAPI document allows, and much that it does not."""

import subprocess
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.router.api.route_table import routes
from tests.clients.environments import python_of
from tests.e2e.server import serve

LARGE = ("^/invocations$", "^/(vertex|v1/completions)$", "^/(chat_tokenize|v1/chat/completions)$")
"""The paths with the most cases, a quarter of all in each."""
PARTS = [*(("--include-path-regex", paths) for paths in LARGE), ("--exclude-path-regex", "|".join(LARGE))]
"""What each of four processes takes, so that the server computes four cases at once. Threads of one would compile code
side by side, which Python 3.11 ends with "AST constructor recursion depth mismatch" now and then."""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_answer_is_one_that_the_document_knows(tmp_path: Path, every_case: bool) -> None:
    """But for one check: a body of the right shape may still break a rule, and is then refused.

    Of each route one answer at least was no refusal, so that its shape was looked at. The routes that change
    adapters are refused by a server without an API key, and nobody guesses the name of a model, a batch or a response.
    """
    program = python_of("schemathesis").with_name("schemathesis")
    with serve(tmp_path, "--max-total-tokens", "40", "--data-dir", str(tmp_path / "data")) as server:
        def run(chosen: Sequence[str]) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [program, "run", f"{server.url}/api-doc/openapi.json", "--phases", "examples,coverage,fuzzing",
                 "--max-examples", "10" if every_case else "5", "--seed", "5", "--suppress-health-check", "all",
                 "--request-timeout", "60",
                 "--no-color", "--exclude-checks", "positive_data_acceptance", *chosen],
                cwd=tmp_path, capture_output=True, text=True, check=False, timeout=800)

        with ThreadPoolExecutor(len(PARTS)) as threads:
            for done in threads.map(run, PARTS):
                assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
        assert server.is_healthy()
        with urllib.request.urlopen(f"{server.url}/metrics") as response:
            metrics = response.read().decode()
    paths = {route.canonical for route in routes("1") if route.tag}
    refused = {"/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/models/{model}",
               "/v1/batches/{batch}", "/v1/batches/{batch}/cancel", "/v1/responses/{response}",
               "/v1/responses/{response}/cancel", "/v1/responses/{response}/input_items"}
    assert {path for path in paths if f'route="{path}",status="200"' in metrics} == paths - refused
    log = server.log.read_text()
    assert "ERROR" not in log, log[-5000:]
