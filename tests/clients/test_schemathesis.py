"""Schemathesis sends running servers what their OpenAPI document allows, and much that it does not."""

import subprocess
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.router.api.kserve_routes import KSERVE_ROUTES
from penstock.router.api.pooling_routes import POOLING_ROUTES
from penstock.router.api.route_table import routes
from penstock.router.api.tei_routes import TEI_ROUTES
from tests.clients.environments import python_of
from tests.e2e.server import Server, serve
from tests.paths import DEMO_MODEL, ROOT
from tests.signing_keys import make_key
from tests.tiny_embedders import make_embedder, make_reranker

KSERVE = {route.canonical for route in KSERVE_ROUTES}
LARGE = ("^/invocations$", "^/(vertex|v1/completions)$", "^/(chat_tokenize|v1/chat/completions)$")
"""The paths with the most cases, a quarter of all in each."""
POOLING = {route.path for route in (*POOLING_ROUTES, *TEI_ROUTES)} - {"/decode"}
"""Those that a model which continues texts refuses."""
OF_KSERVE = r"^/v2(/(models|health|repository)/.*)?$"
PARTS = [*(("--include-path-regex", paths) for paths in LARGE),
         ("--exclude-path-regex", "|".join([*LARGE, *(f"^{path}$" for path in POOLING), OF_KSERVE]))]
"""What each of four processes takes, so that the server computes four cases at once. Threads of one would compile code
side by side, which Python 3.11 ends with "AST constructor recursion depth mismatch" now and then."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def check(server: Server, folder: Path, parts: Sequence[Sequence[str]], every_case: bool) -> str:
    """Sends what each part chooses, side by side: examples and random bodies, and each value of each field by itself if
    every case is asked for. Returns the metrics.

    Every answer is one that the document knows, but for one check: a body of the right shape may still break a rule,
    and is then refused.
    """
    program = python_of("schemathesis").with_name("schemathesis")

    def run(chosen: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, "run", f"{server.url}/api-doc/openapi.json", "--phases",
             "examples,coverage,fuzzing" if every_case else "examples,fuzzing", "--max-examples", "10", "--seed", "5",
             "--suppress-health-check", "all", "--request-timeout", "60", "--no-color",
             "--exclude-checks", "positive_data_acceptance", *chosen],
            cwd=folder, capture_output=True, text=True, check=False, timeout=800)

    with ThreadPoolExecutor(len(parts)) as threads:
        for done in threads.map(run, parts):
            assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
    assert server.is_healthy()
    log = server.log.read_text()
    assert "ERROR" not in log, log[-5000:]
    with urllib.request.urlopen(f"{server.url}/metrics") as response:
        metrics: str = response.read().decode()
    return metrics


def answered(metrics: str, paths: set[str]) -> set[str]:
    """Those of the paths of which one answer at least was no refusal, so that its shape was looked at."""
    return {path for path in paths if f'route="{path}",status="200"' in metrics}


def test_every_answer_is_one_that_the_document_knows(tmp_path: Path, every_case: bool) -> None:
    """The routes that change adapters, or take models away, are refused by a server without an API key, and nobody
    guesses the name of a model, a batch, a response or a request."""
    (tmp_path / "prices.yaml").write_text("currency: USD\n")
    with serve(tmp_path, "--max-total-tokens", "40", "--data-dir", str(tmp_path / "data"),
               "--prices", str(tmp_path / "prices.yaml"),
               "--receipt-key", str(make_key(tmp_path / "key.pem"))) as server:
        metrics = check(server, tmp_path, PARTS, every_case)
    paths = {route.canonical for route in routes("1") if route.tag} - POOLING - KSERVE
    refused = {"/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/unload_model", "/v1/alias_model",
               "/v1/models/{model}", "/v1/batches/{batch}", "/v1/batches/{batch}/cancel", "/v1/responses/{response}",
               "/v1/responses/{response}/cancel", "/v1/responses/{response}/input_items", "/explain/{id}"}
    assert answered(metrics, paths) == paths - refused


@pytest.mark.parametrize(("make", "refused"), [
    (make_embedder, {"/classify", "/predict", "/embed_sparse"}),
    (make_reranker, {"/v1/embeddings", "/embeddings", "/v1/embed", "/v2/embed", "/embed", "/embed_all", "/embed_sparse",
                     "/similarity"})], ids=["embedder", "reranker"])
def test_answers_of_models_of_vectors_and_scores(
    tmp_path: Path, every_case: bool, make: Callable[[Path], Path], refused: set[str]
) -> None:
    chosen = ("--include-path-regex", "|".join(f"^{path}$" for path in POOLING))
    with serve(tmp_path, model=make(tmp_path / "model")) as server:
        metrics = check(server, tmp_path, [chosen], every_case)
    assert answered(metrics, POOLING) == POOLING - refused


def test_answers_of_kserves_routes(tmp_path: Path, every_case: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their paths name the model. Its name is that of a folder, without the slash before it, which schemathesis drops.
    """
    monkeypatch.chdir(ROOT)
    model = DEMO_MODEL.relative_to(ROOT)
    (tmp_path / "schemathesis.toml").write_text(f'[parameters]\n"path.model" = "{model}"\n"path.version" = "1"\n')
    with serve(tmp_path, "--max-total-tokens", "40", model=model) as server:
        metrics = check(server, tmp_path, [("--include-path-regex", OF_KSERVE)], every_case)
    assert answered(metrics, KSERVE) == KSERVE - {"/v2/repository/models/{model}/unload"}
