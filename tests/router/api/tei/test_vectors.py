"""`/embed`, `/embed_all`, `/embed_sparse` and `/similarity`."""

from dataclasses import replace
from typing import Any

import pytest

from penstock.contract.pooling import Task
from penstock.router.generation.text_rules import TextRules
from tests.fakes import FACTS, LIMITS
from tests.pooling_fleet import CLASSIFIER, RERANKER, SIZE, SPARSE, PoolingFleet, cut, numbers
from tests.router.api.conftest import Server
from tests.router.api.tei.conftest import MOST, StartPooling, refusal, told

EMBED = "/embed"


@pytest.fixture
async def server(start_pooling: StartPooling) -> Server:
    return await start_pooling()


def fleet_of(server: Server) -> PoolingFleet:
    assert isinstance(server.fleet, PoolingFleet)
    return server.fleet


async def expected(server: Server, text: str, size: int = SIZE) -> Any:
    """The vector of a text, of a length of 1."""
    vector = numbers(await server.tokenizer.encode(text), SIZE)[:size]
    return pytest.approx([number / sum(each * each for each in vector) ** 0.5 for number in vector], rel=1e-6)


async def test_vectors_of_texts_and_of_ids(server: Server) -> None:
    first, second = await expected(server, "def one"), await expected(server, "two")
    ids = [*await server.tokenizer.encode("two")]
    assert await told(server, EMBED, {"inputs": "def one"}) == (200, [first])
    assert await told(server, EMBED, {"inputs": ["def one", "two"]}) == (200, [first, second])
    assert await told(server, EMBED, {"inputs": ids}) == (200, [second])
    assert await told(server, EMBED, {"inputs": [ids, "def one"]}) == (200, [second, first])


async def test_what_a_vector_is_like(server: Server) -> None:
    assert await told(server, EMBED, {"inputs": "a b", "dimensions": 3}) == (200, [await expected(server, "a b", 3)])
    whole = [*await server.tokenizer.encode("a b")]
    status, [vector] = await told(server, EMBED, {"inputs": "a b", "normalize": False})
    assert (status, vector) == (200, pytest.approx(numbers(whole, SIZE), rel=1e-6))
    assert [asked.normalized for asked in fleet_of(server).asked] == [True, False]


async def test_costs_are_told_by_headers(server: Server) -> None:
    response = await server.post(EMBED, {"inputs": ["a b", [5, 6, 7]]})
    headers = response.headers
    assert (headers["x-compute-type"], headers["x-compute-characters"]) == ("2-cpu", "6")
    assert headers["x-compute-tokens"] == str(3 + len(await server.tokenizer.encode("a b")))
    for name in ("compute", "total", "tokenization", "queue", "inference"):
        assert int(headers[f"x-{name}-time"]) >= 0


@pytest.mark.parametrize(("direction", "kept"), [({}, slice(8)), ({"truncation_direction": "Left"}, slice(-8, None))])
async def test_a_long_text_is_cut_where_that_is_wanted(
    start_pooling: StartPooling, direction: dict[str, str], kept: slice
) -> None:
    server = await start_pooling(limits=replace(LIMITS, max_input_tokens=8))
    ids = [*range(70, 90)]
    assert (await told(server, EMBED, {"inputs": ids, "truncate": True, **direction}))[0] == 200
    assert fleet_of(server).texts == [ids[kept]]
    assert await told(server, EMBED, {"inputs": ids}) == (
        422, refusal("`inputs` must have less than 8 tokens. Given: 20"))


async def test_prompts_of_the_checkpoint(start_pooling: StartPooling) -> None:
    """Stand before texts, not before tokens; the one that is always there gives way to one that is named."""
    server = await start_pooling(texts=TextRules({"query": "query: ", "none": ""}, default_prompt="text: "))
    for prompt, name in (("text: ", {}), ("query: ", {"prompt_name": "query"}), ("", {"prompt_name": "none"})):
        assert await told(server, EMBED, {"inputs": "a", **name}) == (200, [await expected(server, f"{prompt}a")])
        _, [tokens] = await told(server, "/tokenize", {"inputs": "a", **name})
        assert [token["id"] for token in tokens] == [*await server.tokenizer.encode(f"{prompt}a")]
    await told(server, EMBED, {"inputs": [70]})
    assert fleet_of(server).texts[-1] == [70]
    for path in (EMBED, "/tokenize", "/embed_all"):
        assert await told(server, path, {"inputs": "a", "prompt_name": "other"}) == (
            422, refusal("`prompt_name` must be one of `query`, `none`. Given: `other`"))


async def test_the_server_may_cut_by_itself(start_pooling: StartPooling) -> None:
    limits = replace(LIMITS, max_input_tokens=8)
    server = await start_pooling(limits=limits, texts=TextRules(truncates=True))
    assert (await told(server, EMBED, {"inputs": [70] * 20}))[0] == 200
    assert (await told(server, EMBED, {"inputs": [70] * 20, "truncate": False}))[0] == 422
    assert (await (await server.client.get("/info")).json())["auto_truncate"] is True


@pytest.mark.parametrize(("body", "status", "sentence", "kind"), [
    ({"inputs": ""}, 400, "`inputs` cannot be empty", "empty"),
    ({"inputs": []}, 400, "`inputs` cannot be empty", "empty"),
    ({"inputs": ["a", ""]}, 400, "`inputs` cannot be empty", "empty"),
    ({"inputs": [[1], []]}, 400, "`inputs` cannot be empty", "empty"),
    ({"inputs": ["a"] * (MOST + 1)}, 422, "batch size 5 > maximum allowed batch size 4", "validation"),
    ({"inputs": [8192]}, 422, "`inputs` must have token ids < 8192, the model's vocabulary. Given: 8192", "validation"),
    ({"inputs": "a", "dimensions": 0}, 422,
     f"`dimensions` must be > 0 and <= {SIZE}, the size of the model's vectors. Given: 0", "validation"),
    ({"inputs": "a", "dimensions": SIZE + 1}, 422,
     f"`dimensions` must be > 0 and <= {SIZE}, the size of the model's vectors. Given: {SIZE + 1}", "validation"),
    ({"inputs": "a", "prompt_name": "query"}, 422,
     "`prompt_name` can't be `query`: the checkpoint has no prompts", "validation"),
    ({"inputs": "a", "adapter_id": "x"}, 422, "`adapter_id` is not supported: this server has no adapters",
     "validation"),
])
async def test_what_is_refused(
    server: Server, body: object, status: int, sentence: str, kind: str
) -> None:
    assert await told(server, EMBED, body) == (status, refusal(sentence, kind))
    assert await told(server, EMBED, {"inputs": "a"}) == (200, [await expected(server, "a")])


async def test_a_text_of_a_million_characters(server: Server) -> None:
    status, error = await told(server, EMBED, {"inputs": "a " * 500_000})
    assert (status, error["error_type"]) == (422, "validation")
    assert error["error"].startswith("Input validation error: `inputs` must have less than ")


@pytest.mark.parametrize(("body", "fault"), [
    ({}, "missing field `inputs`"),
    ({"inputs": 5}, "inputs: invalid value: integer `5`: must be a text, a list of token ids, or a list of texts and "
                    "of lists of token ids"),
    ({"inputs": "a", "truncation_direction": "up"}, "truncation_direction: invalid value: string \"up\": Input should "
                                                    "be 'Left', 'Right', 'left' or 'right'"),
    ({"inputs": "a", "normalize": 1}, "normalize: invalid type: integer `1`, expected a boolean"),
    ({"inputs": "a", "encoding_format": "base64"}, "encoding_format: invalid value: string \"base64\": Input should "
                                                   "be 'float'"),
])
async def test_bodies_of_another_shape(server: Server, body: object, fault: str) -> None:
    assert await told(server, EMBED, body) == (
        422, f"Failed to deserialize the JSON body into the target type: {fault}")


async def test_vectors_of_all_tokens(server: Server) -> None:
    status, texts = await told(server, "/embed_all", {"inputs": ["a b", [5]]})
    ids = await server.tokenizer.encode("a b")
    assert status == 200
    assert texts == [[pytest.approx(numbers([each], SIZE), rel=1e-6) for each in of_text] for of_text in (ids, [5])]


async def test_sparse_vectors(start_pooling: StartPooling) -> None:
    server = await start_pooling(SPARSE)
    told_ = await told(server, "/embed_sparse", {"inputs": [[7, 3], "a"]})
    [token] = await server.tokenizer.encode("a")
    assert told_ == (200, [[{"index": 3, "value": 0.25}, {"index": 7, "value": 0.125}],
                           [{"index": token, "value": pytest.approx(1 / (1 + token), rel=1e-6)}]])
    assert (await told(server, "/", {"inputs": "a"}))[1][0][0]["index"] == token


async def test_how_alike_texts_are(server: Server) -> None:
    body = {"inputs": {"source_sentence": "one", "sentences": ["one", "two"]}}
    status, (same, other) = await told(server, "/similarity", body)
    assert (status, same) == (200, pytest.approx(1))
    one, two = [cut(numbers(await server.tokenizer.encode(text), SIZE), fleet_of(server).asked[0])
                for text in ("one", "two")]
    assert other == pytest.approx(sum(a * b for a, b in zip(one, two, strict=True)), abs=1e-6)
    assert await told(server, "/", body) == (200, [same, other])


@pytest.mark.parametrize(("inputs", "status", "sentence", "kind"), [
    ({"source_sentence": "", "sentences": ["a"]}, 400, "`source_sentence` cannot be empty", "empty"),
    ({"source_sentence": "a", "sentences": [""]}, 400, "`sentences` cannot be empty", "empty"),
    ({"source_sentence": "a", "sentences": []}, 400, "`sentences` cannot be empty", "empty"),
    ({"source_sentence": "a", "sentences": ["a"] * MOST}, 422, "batch size 5 > maximum allowed batch size 4",
     "validation"),
])
async def test_comparisons_that_are_refused(
    server: Server, inputs: object, status: int, sentence: str, kind: str
) -> None:
    assert await told(server, "/similarity", {"inputs": inputs}) == (status, refusal(sentence, kind))


@pytest.mark.parametrize("facts", [FACTS, SPARSE, RERANKER, CLASSIFIER])
async def test_models_of_other_kinds(start_pooling: StartPooling, facts: Any) -> None:
    """Say what they have."""
    server = await start_pooling(facts)
    bodies = {"/embed": {"inputs": "a"}, "/embed_all": {"inputs": "a"},
              "/similarity": {"inputs": {"source_sentence": "a", "sentences": ["b"]}}}
    if Task.EMBED_SPARSE not in facts.tasks:
        bodies["/embed_sparse"] = {"inputs": "a"}
    for each, body in bodies.items():
        status, error = await told(server, each, body)
        assert (status, error["error_type"]) == (424, "backend")
        assert error["error"].startswith("Input validation error: the model makes no ")
        assert "; it has /" in error["error"]
    assert not server.fleet.plans


async def test_an_overloaded_server(server: Server) -> None:
    async with server.groups.permit(server.groups.limits.max_concurrent_requests):
        assert await told(server, EMBED, {"inputs": "a"}) == (
            429, {"error": "Model is overloaded", "error_type": "overloaded"})


async def test_a_group_that_is_away(server: Server) -> None:
    server.engine.give_up()
    assert await told(server, EMBED, {"inputs": "a"}) == (503, {"error": "unhealthy", "error_type": "unhealthy"})


async def test_a_result_that_is_no_number(server: Server) -> None:
    server.fleet.is_nan = lambda row: True
    status, error = await told(server, EMBED, {"inputs": "a"})
    assert (status, error["error_type"]) == (424, "backend")
