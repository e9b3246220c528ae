"""`/tokenize` and `/decode`, `/info`, and the other shared paths, by kind of model."""

from typing import Any

import pytest

from tests.pooling_fleet import CLASSIFIER, EMBEDDER, RERANKER
from tests.router.api.conftest import Server
from tests.router.api.tei.conftest import MOST, StartPooling, refusal, told


async def test_tokens_and_their_texts(start_pooling: StartPooling) -> None:
    server = await start_pooling()
    status, (first, second) = await told(server, "/tokenize", {"inputs": ["def wörld", "a"]})
    assert status == 200
    for token in first:  # several may be of one character
        assert token["text"] == "def wörld".encode()[token["start"]:token["stop"]].decode()
    assert (first[0]["start"], first[-1]["stop"]) == (0, len("def wörld".encode()))
    assert not any(token["special"] for token in first)
    ids = [[token["id"] for token in tokens] for tokens in (first, second)]
    assert await told(server, "/decode", {"ids": ids}) == (200, ["def wörld", "a"])
    assert await told(server, "/decode", {"ids": ids[0]}) == (200, ["def wörld"])
    assert await told(server, "/tokenize", {"inputs": "a"}) == (200, [second])


async def test_special_tokens_are_told_apart(start_pooling: StartPooling) -> None:
    server = await start_pooling()
    mark = server.tokenizer.special_id("<|im_end|>")
    assert await told(server, "/decode", {"ids": [mark]}) == (200, [""])
    assert await told(server, "/decode", {"ids": [mark], "skip_special_tokens": False}) == (200, ["<|im_end|>"])
    _, [[token]] = await told(server, "/tokenize", {"inputs": "<|im_end|>"})
    assert token == {"id": mark, "text": "<|im_end|>", "special": False, "start": 0, "stop": 10}


async def test_a_long_text_comes_in_parts(start_pooling: StartPooling) -> None:
    server = await start_pooling()
    status, (first, second) = await told(server, "/tokenize", {"inputs": ["a " * 30_000, ""]})
    assert (status, len(first) > 20_000, second) == (200, True, [])


@pytest.mark.parametrize(("path", "body", "status", "sentence", "kind"), [
    ("/tokenize", {"inputs": []}, 400, "`inputs` cannot be empty", "empty"),
    ("/tokenize", {"inputs": ["a"] * (MOST + 1)}, 422, "batch size 5 > maximum allowed batch size 4", "validation"),
    ("/decode", {"ids": []}, 400, "`ids` cannot be empty", "empty"),
    ("/decode", {"ids": [[1], []]}, 400, "`ids` cannot be empty", "empty"),
    ("/decode", {"ids": [4_000_000_000]}, 422,
     "`ids` must have token ids < 8192, the tokenizer's vocabulary. Given: 4000000000", "validation"),
    ("/decode", {"ids": [[1]] * (MOST + 1)}, 422, "batch size 5 > maximum allowed batch size 4", "validation"),
])
async def test_what_is_refused(
    start_pooling: StartPooling, path: str, body: object, status: int, sentence: str, kind: str
) -> None:
    assert await told(await start_pooling(), path, body) == (status, refusal(sentence, kind))


@pytest.mark.parametrize(("body", "fault"), [
    ({}, "missing field `ids`"),
    ({"ids": "a"}, 'ids: invalid value: string "a": must be a list of token ids, or a list of lists of them'),
    ({"ids": [-1]}, "ids: invalid value: a list: token ids must be >= 0 and < 4294967296"),
    ({"ids": [True]}, "ids: invalid value: a list: must be a list of token ids, or a list of lists of them"),
])
async def test_ids_that_are_none(start_pooling: StartPooling, body: object, fault: str) -> None:
    assert await told(await start_pooling(), "/decode", body) == (
        422, f"Failed to deserialize the JSON body into the target type: {fault}")


async def test_generators_keep_their_own_ways(server: Server) -> None:
    """Only what they do not have is TEI's; texts of tokens are there for every model."""
    status, tokens = await told(server, "/tokenize", {"inputs": "a b"})
    assert (status, [*tokens[0]]) == (200, ["id", "text", "start", "stop"])
    assert await told(server, "/decode", {"ids": [token["id"] for token in tokens]}) == (200, ["a b"])
    info = await (await server.client.get("/info")).json()
    assert info["max_best_of"] == 2
    status, [answer] = await told(server, "/", {"inputs": "a"})
    assert (status, [*answer]) == (200, ["generated_text"])


@pytest.mark.parametrize(("facts", "kind"), [
    (EMBEDDER, {"embedding": {"pooling": "mean"}}),
    (RERANKER, {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}}),
    (CLASSIFIER, {"classifier": {"id2label": {"0": "good", "1": "bad", "2": "neither"},
                                 "label2id": {"good": 0, "bad": 1, "neither": 2}}})])
async def test_info(start_pooling: StartPooling, facts: Any, kind: object) -> None:
    server = await start_pooling(facts)
    info = await (await server.client.get("/info")).json()
    assert info["model_type"] == kind
    assert info["max_client_batch_size"] == MOST
    assert (info["model_id"], info["model_sha"], info["served_model_name"]) == ("demo", "abc", "demo")


async def test_health_in_teis_words(start_pooling: StartPooling) -> None:
    server = await start_pooling()
    for path in ("/health", "/ping", "/"):
        assert (await server.client.get(path)).status == 200
    server.engine.give_up()
    for path in ("/health", "/ping", "/"):
        response = await server.client.get(path)
        assert (response.status, await response.json()) == (503, {"error": "unhealthy", "error_type": "unhealthy"})
