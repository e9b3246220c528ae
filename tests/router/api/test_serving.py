"""What a router says when it has started: what is served, what decides the bits, and how to ask."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.contract.facts import Facts
from penstock.launcher.config import LauncherConfig
from penstock.launcher.launch import main
from penstock.router.chat.template import ChatTemplate
from penstock.router.config import RouterConfig
from penstock.router.serving import describe, example, url
from tests.fakes import FACTS, LIMITS
from tests.pooling_fleet import CLASSIFIER, EMBEDDER, RERANKER, SPARSE, PoolingFleet
from tests.router.api.conftest import Start


def config(*arguments: str) -> RouterConfig:
    launcher = LauncherConfig.from_options(main.make_context("launcher", ["--model-id", "m", *arguments]).params)
    return launcher.for_router(model_dir=Path("/m"), tokenizer_json=Path("/m/t"), revision=None, shard_sockets=[],
                               listen_fd=3, notices_fd=4)


@pytest.mark.parametrize(("hostname", "shown"), [
    ("0.0.0.0", "localhost"), ("127.0.0.1", "localhost"), ("localhost", "localhost"), ("10.0.0.5", "10.0.0.5"),
    ("::", "[::1]"), ("::1", "[::1]"), ("fd00::5", "[fd00::5]")])
def test_the_address(hostname: str, shown: str) -> None:
    assert url(config("--hostname", hostname, "--port", "8080")) == f"http://{shown}:8080"
    tls = ("--ssl-certfile", "/c", "--ssl-keyfile", "/k")
    assert url(config("--hostname", hostname, *tls)) == f"https://{shown}:3000"


@pytest.mark.parametrize("is_chat", [True, False])
async def test_the_example_is_answered(start: Start, demo: ChatTemplate, is_chat: bool) -> None:
    """By a model with a template for chats, and by one without."""
    server = await start(template=demo if is_chat else None)
    words = shlex.split(example(config(), FACTS, is_chat))
    assert words[:2] == ["curl", "http://localhost:3000" + ("/v1/chat/completions" if is_chat else "/generate")]
    assert words[2:4] == ["-H", "content-type: application/json"]
    assert words[4] == "-d"
    response = await server.post(words[1].removeprefix("http://localhost:3000"), json.loads(words[5]))
    assert response.status == 200, await response.text()


def test_the_example_has_the_key_that_is_needed() -> None:
    assert "authorization" not in example(config(), FACTS, is_chat=True)
    assert '-H "authorization: Bearer $API_KEY"' in example(config("--api-key", "secret"), FACTS, is_chat=True)


@pytest.mark.parametrize(("numerics", "keeps_bits", "words"), [
    ("cpu-avx2/x", True, "any server of these weights gives the same ones, bit for bit, if its kernels and number "
                         "formats have the same name (numerics): cpu-avx2/x"),
    ("gpu-sm90/x", True, "answers may change with the batch, which --deterministic prevents; their kernels and number "
                         "formats (numerics): gpu-sm90/x"),
    ("cpu-avx2/x", False, "answers may change with the batch, as a trial has shown of this model; their")])
def test_what_decides_the_bits_is_said_in_words(
    numerics: str, keeps_bits: bool, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    describe(config(), replace(FACTS, numerics=numerics, keeps_bits=keeps_bits), LIMITS)
    served, bits, *_ = caplog.messages
    assert served.startswith(f"m in {FACTS.dtype} on {FACTS.world_size} shard; ")
    assert words in bits


@pytest.mark.parametrize("facts", [EMBEDDER, SPARSE, RERANKER, CLASSIFIER], ids=lambda facts: facts.pooling)
async def test_the_example_of_a_model_that_makes_vectors_or_scores_is_answered(start: Start, facts: Facts) -> None:
    server = await start(facts=facts, make_fleet=lambda _: PoolingFleet(facts))
    words = shlex.split(example(config(), facts, is_chat=False))
    response = await server.post(words[1].removeprefix("http://localhost:3000"), json.loads(words[5]))
    assert response.status == 200, await response.text()


def test_what_a_model_has_that_generates_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    describe(config(), EMBEDDER, LIMITS)
    assert "the model generates no text: it has /v1/embeddings, /embed" in caplog.text
    assert "KV tokens" not in caplog.text
