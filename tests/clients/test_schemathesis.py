"""The OpenAPI document against a running server: no answer has a status, type or shape that it does not describe."""

import subprocess
import urllib.request
from pathlib import Path

import pytest

from router.api.table import routes
from tests.clients.environments import python_with
from tests.e2e.server import serve

CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance",
          "response_headers_conformance", "unsupported_method", "allow_header_conformance")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_answers_are_as_described(tmp_path: Path) -> None:
    """And of every route there was one that is no refusal, so that its own shape was looked at."""
    python = python_with("schemathesis==4.32.5")
    with serve(tmp_path, "--num-shard", "2", "--enable-prefill-logprobs") as server:
        run = subprocess.run(
            [python.with_name("schemathesis"), "run", f"{server.url}/api-doc/openapi.json", "--checks",
             ",".join(CHECKS), "--phases", "coverage,fuzzing", "--max-examples", "20", "--seed", "1", "--no-shrink",
             "--continue-on-failure", "--request-timeout", "30"],
            capture_output=True, text=True, check=False, cwd=tmp_path, timeout=400)
        with urllib.request.urlopen(f"{server.url}/metrics") as response:
            metrics = response.read().decode()
    assert run.returncode == 0, run.stdout + run.stderr
    answered = {route.path for route in routes("1") if f'route="{route.path}",status="200"' in metrics}
    assert answered == {route.path for route in routes("1")}
