"""vLLM's `/pooling` and `/classify`."""

import struct
from base64 import b64decode
from dataclasses import replace

import pytest

from penstock.contract.facts import Facts
from penstock.contract.pooling import Task
from tests.fakes import FACTS
from tests.pooling_fleet import CLASSIFIER, EMBEDDER, RERANKER, SIZE, SPARSE, PoolingFleet, numbers
from tests.router.api.conftest import Server, Start
from tests.router.api.openai.pooling import ask, refusal


async def serve(start: Start, facts: Facts) -> Server:
    return await start(facts=facts, make_fleet=lambda _: PoolingFleet(facts))


async def test_vectors_of_texts_and_of_tokens(start: Start) -> None:
    server = await serve(start, EMBEDDER)
    texts = ["Say it", "Hello"]
    vectors = [each["embedding"] for each in (await ask(server, "/v1/embeddings", {"input": texts}))["data"]]
    answer = await ask(server, "/pooling", {"input": texts})
    assert answer["id"].startswith("pool-")
    assert answer["data"] == [{"index": index, "object": "pooling", "data": vector}
                              for index, vector in enumerate(vectors)]
    assert (await ask(server, "/pooling", {"input": texts, "task": "embed"}))["data"] == answer["data"]
    [first, _] = (await ask(server, "/pooling", {"input": texts, "task": "token_embed"}))["data"]
    assert [len(vector) for vector in first["data"]] == [SIZE] * len(await server.tokenizer.encode("Say it"))
    [coded] = (await ask(server, "/pooling", {
        "input": "Say it", "task": "token_embed", "encoding_format": "base64"}))["data"]
    flat = b64decode(coded["data"])
    assert [*struct.unpack(f"<{len(flat) // 4}f", flat)] == [number for vector in first["data"] for number in vector]


async def test_scores_of_texts(start: Start) -> None:
    server = await serve(start, CLASSIFIER)
    [raw] = (await ask(server, "/pooling", {"input": "Say it", "use_activation": False}))["data"]
    assert raw["data"] == pytest.approx(numbers(await server.tokenizer.encode("Say it"), 3))
    [shown] = (await ask(server, "/pooling", {"input": "Say it", "task": "classify"}))["data"]
    assert sum(shown["data"]) == pytest.approx(1)


async def test_classes(start: Start) -> None:
    server = await serve(start, CLASSIFIER)
    answer = await ask(server, "/classify", {"input": ["Say it", "Hello"]})
    assert answer["id"].startswith("classify-")
    for index, each in enumerate(answer["data"]):
        assert (each["index"], each["num_classes"]) == (index, 3)
        assert sum(each["probs"]) == pytest.approx(1)
        assert each["label"] == CLASSIFIER.labels[each["probs"].index(max(each["probs"]))]
    raw = await ask(server, "/classify", {"input": "Say it", "use_activation": False})
    assert raw["data"][0]["probs"] == pytest.approx(numbers(await server.tokenizer.encode("Say it"), 3))
    assert raw["data"][0]["label"] == answer["data"][0]["label"]


async def test_tasks_that_a_model_does_not_have(start: Start) -> None:
    for facts, fields in ((EMBEDDER, {"task": "classify"}), (RERANKER, {"task": "embed"}),
                          (SPARSE, {"task": "embed"}), (FACTS, {}),
                          (replace(EMBEDDER, tasks=frozenset({Task.EMBED})), {"task": "token_embed"})):
        server = await serve(start, facts)
        assert (await refusal(server, "/pooling", {"input": "a", **fields}))["code"] == "model_not_supported"
    server = await serve(start, EMBEDDER)
    assert (await refusal(server, "/classify", {"input": "a"}))["code"] == "model_not_supported"
    assert "token_embed" in (await refusal(server, "/pooling", {"input": "a", "task": "plugin"}))["message"]


async def test_a_sparse_vector_has_all_of_its_numbers(start: Start) -> None:
    server = await serve(start, SPARSE)
    [found] = (await ask(server, "/pooling", {"input": [[9, 4, 9]]}))["data"]
    assert {place: number for place, number in enumerate(found["data"]) if number} == (
        pytest.approx({4: 0.2, 9: 0.1}))
    assert len(found["data"]) == SPARSE.vector_size


async def test_token_ids_and_texts_to_score_have_no_prompt(start: Start) -> None:
    server = await serve(start, EMBEDDER)
    assert "`prompt_name` is for texts" in (
        await refusal(server, "/pooling", {"input": [[1, 2]], "prompt_name": "query"}))["message"]
    server = await serve(start, CLASSIFIER)
    assert "`prompt_name` is for texts" in (
        await refusal(server, "/pooling", {"input": "a", "prompt_name": "query"}))["message"]
