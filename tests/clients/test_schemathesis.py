"""Schemathesis sends a running server what its OpenAPI document allows, and much that it does not."""

import subprocess
import urllib.request
from pathlib import Path

import pytest

from penstock.router.api.route_table import routes
from tests.clients.environments import python_of
from tests.e2e.server import serve


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_answer_is_one_that_the_document_knows(tmp_path: Path) -> None:
    """But for one check: a body of the right shape may still break a rule, and is then refused.

    Of each route one answer at least was no refusal, so that its shape was looked at. The routes that change
    adapters are refused by a server without an API key, and nobody guesses a model's name.
    """
    program = python_of("schemathesis").with_name("schemathesis")
    with serve(tmp_path, "--max-total-tokens", "40") as server:
        run = subprocess.run(
            [program, "run", f"{server.url}/api-doc/openapi.json", "--phases", "examples,coverage,fuzzing",
             "--max-examples", "10", "--workers", "4", "--seed", "5", "--suppress-health-check", "all",
             "--request-timeout", "60", "--no-color", "--exclude-checks", "positive_data_acceptance"],
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=800)
        assert run.returncode == 0, run.stdout[-20_000:] + run.stderr
        assert server.is_healthy()
        with urllib.request.urlopen(f"{server.url}/metrics") as response:
            metrics = response.read().decode()
    paths = {route.canonical for route in routes("1") if route.tag}
    refused = {"/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/models/{model}"}
    assert {path for path in paths if f'route="{path}",status="200"' in metrics} == paths - refused
    log = server.log.read_text()
    assert "ERROR" not in log, log[-5000:]
