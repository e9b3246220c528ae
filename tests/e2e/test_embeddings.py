"""The snippets of the page of embeddings, and the example of retrieval, run with servers of tiny models."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.server import Server, serve
from tests.e2e.test_snippets import FENCED
from tests.paths import ROOT
from tests.tiny_embedders import make_classifier, make_embedder, make_reranker

PAGE = ROOT / "docs/embeddings.md"
EXAMPLE = ROOT / "examples/retrieval.py"
MODELS = {3000: make_embedder, 3001: make_reranker, 3002: make_classifier}
"""The models by the ports at which the page has them."""
SNIPPETS = [pytest.param(found["language"], found["snippet"], id=f"{PAGE.read_text().count(chr(10), 0, found.start())}")
            for found in FENCED.finditer(PAGE.read_text()) if found["language"] in ("bash", "python")]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[int, Server]]:
    """Servers of all three kinds, by the page's ports."""
    with ExitStack() as stack:
        yield {port: stack.enter_context(serve(tmp_path_factory.mktemp("server"), "--threads", "1",
                                               model=make(tmp_path_factory.mktemp("model"))))
               for port, make in MODELS.items()}


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_embedder(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize(("language", "snippet"), SNIPPETS)
def test_a_snippet_runs(servers: Mapping[int, Server], embedder: Path, language: str, snippet: str) -> None:
    program = ["bash", "-euo", "pipefail", "-c"] if language == "bash" else [sys.executable, "-c"]
    snippet = re.sub(r"localhost:(\d+)", lambda found: f"127.0.0.1:{servers[int(found[1])].port}", snippet)
    snippet = snippet.replace('"MODEL"', repr(str(embedder)))
    done = subprocess.run([*program, snippet.replace("curl ", "curl --fail-with-body -sS ")], capture_output=True,
                          text=True, timeout=60, check=False,
                          env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"})
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout


def test_the_example_reads_two_texts_and_answers(servers: Mapping[int, Server], server: Server) -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 40
    addresses = [each.url for each in (servers[3000], servers[3001], server)]
    done = subprocess.run([sys.executable, str(EXAMPLE), *addresses, "Where does the water go?"], capture_output=True,
                          text=True, check=True)
    assert re.fullmatch(r"(read: .+\n){2}answer: (?s:.+)", done.stdout)
