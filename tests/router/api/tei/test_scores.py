"""`/predict` and `/rerank`."""

from dataclasses import replace
from typing import Any

import pytest

from penstock.router.pooling.scores import activated
from tests.fakes import FACTS
from tests.pooling_fleet import CLASSIFIER, EMBEDDER, RERANKER, PoolingFleet, numbers
from tests.router.api.conftest import Server
from tests.router.api.tei.conftest import MOST, StartPooling, refusal, told


async def raw(server: Server, text: str) -> list[float]:
    assert isinstance(server.fleet, PoolingFleet)
    return numbers(await server.tokenizer.encode(text), len(server.fleet.facts.labels))


def near(scores: dict[str, float]) -> list[Any]:
    """The predictions with these scores, the highest first."""
    return [{"label": label, "score": pytest.approx(scores[label], abs=1e-6)}
            for label in sorted(scores, key=scores.__getitem__, reverse=True)]


async def test_classes_of_texts(start_pooling: StartPooling) -> None:
    server = await start_pooling(CLASSIFIER)
    scores = await raw(server, "a b")
    shares = near(dict(zip(CLASSIFIER.labels, activated(scores, "softmax"), strict=True)))
    assert await told(server, "/predict", {"inputs": "a b"}) == (200, shares)
    assert await told(server, "/predict", {"inputs": ["a b"]}) == (200, shares)
    assert await told(server, "/predict", {"inputs": [["a b"], ["a b"]]}) == (200, [shares, shares])
    as_they_are = near(dict(zip(CLASSIFIER.labels, scores, strict=True)))
    assert await told(server, "/predict", {"inputs": "a b", "raw_scores": True}) == (200, as_they_are)


async def test_pairs(start_pooling: StartPooling) -> None:
    server = await start_pooling(CLASSIFIER)
    _, pair = await told(server, "/predict", {"inputs": ["a", "b"]})
    _, batch = await told(server, "/predict", {"inputs": [["a", "b"], ["a"]]})
    assert batch[0] == pair
    assert batch[1] != pair


async def test_bodies_of_the_hubs_api(start_pooling: StartPooling) -> None:
    """Whose answers are always lists of lists."""
    server = await start_pooling(CLASSIFIER)
    scores = await raw(server, "a b")
    for wanted, activation in (({}, "softmax"), ({"function_to_apply": "sigmoid"}, "sigmoid"),
                               ({"function_to_apply": "none"}, "none")):
        shown = near(dict(zip(CLASSIFIER.labels, activated(scores, activation), strict=True)))
        assert await told(server, "/", {"inputs": "a b", "parameters": wanted}) == (200, [shown])
        assert await told(server, "/", {"inputs": "a b", "parameters": {**wanted, "top_k": 1}}) == (200, [shown[:1]])


async def test_ranks(start_pooling: StartPooling) -> None:
    server = await start_pooling(RERANKER)
    texts = ["one", "def two", "three three"]
    status, ranks = await told(server, "/rerank", {"query": "q", "texts": texts})
    assert status == 200
    assert sorted(rank["index"] for rank in ranks) == [0, 1, 2]
    scores = [rank["score"] for rank in ranks]
    assert scores == sorted(scores, reverse=True)
    assert all(0 < score < 1 for score in scores)
    _, bare = await told(server, "/rerank", {"query": "q", "texts": texts, "raw_scores": True, "return_text": True})
    assert [rank["index"] for rank in bare] == [rank["index"] for rank in ranks]
    assert [activated([rank["score"]], "sigmoid")[0] for rank in bare] == pytest.approx(scores)
    assert [rank["text"] for rank in bare] == [texts[rank["index"]] for rank in bare]
    for path in ("/", "/invocations"):
        assert await told(server, path, {"query": "q", "texts": texts}) == (200, ranks)


async def test_scores_without_an_activation_get_teis(start_pooling: StartPooling) -> None:
    server = await start_pooling(replace(RERANKER, activation="identity"))
    _, [rank] = await told(server, "/rerank", {"query": "q", "texts": ["a"]})
    _, [bare] = await told(server, "/rerank", {"query": "q", "texts": ["a"], "raw_scores": True})
    assert rank["score"] == pytest.approx(activated([bare["score"]], "sigmoid")[0])


@pytest.mark.parametrize(("path", "body", "status", "sentence", "kind"), [
    ("/rerank", {"query": "", "texts": ["a"]}, 400, "`query` cannot be empty", "empty"),
    ("/rerank", {"query": "q", "texts": []}, 400, "`texts` cannot be empty", "empty"),
    ("/rerank", {"query": "q", "texts": ["a"] * (MOST + 1)}, 422, "batch size 5 > maximum allowed batch size 4",
     "validation"),
    ("/predict", {"inputs": ""}, 400, "`inputs` cannot be empty", "empty"),
    ("/predict", {"inputs": [["a"]] * (MOST + 1)}, 422, "batch size 5 > maximum allowed batch size 4", "validation"),
])
async def test_what_is_refused(
    start_pooling: StartPooling, path: str, body: object, status: int, sentence: str, kind: str
) -> None:
    assert await told(await start_pooling(RERANKER), path, body) == (status, refusal(sentence, kind))


@pytest.mark.parametrize("inputs", [[], ["a", "b", "c"], [["a", "b", "c"]], [[]], [["a"], "b"], 5, [5]])
async def test_inputs_that_are_none(start_pooling: StartPooling, inputs: object) -> None:
    status, fault = await told(await start_pooling(RERANKER), "/predict", {"inputs": inputs})
    assert status == 422
    assert fault.endswith(": must be a text, a pair of texts, or a list of lists of one text or two")


@pytest.mark.parametrize("facts", [FACTS, EMBEDDER, CLASSIFIER])
async def test_models_of_other_kinds(start_pooling: StartPooling, facts: Any) -> None:
    server = await start_pooling(facts)
    bodies: dict[str, Any] = {"/rerank": {"query": "a", "texts": ["b"]}}
    if facts is not CLASSIFIER:
        bodies["/predict"] = {"inputs": "a"}
    for path, body in bodies.items():
        status, error = await told(server, path, body)
        assert (status, error["error_type"]) == (424, "backend")
        assert "the model " in error["error"]
        assert "; it has /" in error["error"]


async def test_vertex(start_pooling: StartPooling) -> None:
    server = await start_pooling(RERANKER)
    ranking = {"query": "q", "texts": ["a", "b"]}
    _, ranks = await told(server, "/rerank", ranking)
    _, scores = await told(server, "/predict", {"inputs": ["q", "a"]})
    assert await told(server, "/vertex", {"instances": [ranking, {"inputs": ["q", "a"]}]}) == (
        200, {"predictions": [ranks, scores]})
    assert (await told(server, "/vertex", {"instances": []}))[0] == 422
    assert (await told(server, "/vertex", {"instances": [ranking, {"inputs": ""}]}))[0] == 400


async def test_vertex_of_vectors(start_pooling: StartPooling) -> None:
    server = await start_pooling(EMBEDDER)
    _, vectors = await told(server, "/embed", {"inputs": "a"})
    assert await told(server, "/vertex", {"instances": [{"inputs": "a"}]}) == (200, {"predictions": [vectors]})
