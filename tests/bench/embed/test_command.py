"""`penstock bench embed` measures the server through both routes, in the formats that are wanted."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiny_embedders import make_embedder


@pytest.mark.slow
def test_it_measures_the_server_by_both_routes(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    model, file = make_embedder(tmp_path / "model"), tmp_path / "found.json"
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "bench", "embed", str(model), "--formats", "float32", "--texts", "64",
         "--rounds", "2", "--longest", "48", "--compared", "1", "--threads", "1", "--json", str(file)],
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())
    assert found["kind"] == "embeddings"
    assert [*found["figures"]] == ["Penstock float32, /v1/embeddings", "Penstock float32, /embed"]
    assert all(len(run["rates"]) == len(run["short_ms"]) == 2 for run in found["figures"].values())
