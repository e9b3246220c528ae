"""The Hub's client, unchanged, as it asks for vectors, comparisons and classes."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError

from tests.pooling_fleet import CLASSIFIER, EMBEDDER
from tests.router.api.conftest import Server
from tests.router.api.tei.conftest import StartPooling, told


async def ask(server: Server, question: Callable[[InferenceClient], Any]) -> Any:
    """What the client says, in a thread of its own."""
    return await asyncio.to_thread(question, InferenceClient(str(server.client.make_url("")).rstrip("/")))


async def test_vectors(start_pooling: StartPooling) -> None:
    server = await start_pooling(EMBEDDER)
    _, [vector] = await told(server, "/embed", {"inputs": "a b"})
    found = await ask(server, lambda client: client.feature_extraction("a b"))
    assert found.tolist() == [pytest.approx(vector)]
    short = await ask(server, lambda client: client.feature_extraction(
        "a b", normalize=False, truncate=True, truncation_direction="left", dimensions=3))
    assert short.shape == (1, 3)
    with pytest.raises(HfHubHTTPError, match="the checkpoint has no prompts"):
        await ask(server, lambda client: client.feature_extraction("a b", prompt_name="query"))


async def test_comparisons(start_pooling: StartPooling) -> None:
    server = await start_pooling(EMBEDDER)
    found = await ask(server, lambda client: client.sentence_similarity("one", other_sentences=["one", "two"]))
    assert found[0] == pytest.approx(1)
    assert len(found) == 2


async def test_classes(start_pooling: StartPooling) -> None:
    server = await start_pooling(CLASSIFIER)
    _, predictions = await told(server, "/predict", {"inputs": "a b"})
    found = await ask(server, lambda client: client.text_classification("a b"))
    assert [(each.label, each.score) for each in found] == [(each["label"], each["score"]) for each in predictions]
    [first] = await ask(server, lambda client: client.text_classification("a b", top_k=1, function_to_apply="sigmoid"))
    assert first.label == predictions[0]["label"]
