"""OpenAI's `POST /v1/embeddings`: vectors of texts, what it takes and what it refuses."""

import math
import struct
from base64 import b64decode
from dataclasses import replace
from typing import Any

import pytest

from penstock.contract.pooling import Pooling, Task
from penstock.router.api.openai.embedding_bodies import EmbeddingBody
from penstock.router.generation.other_fields import IGNORED, REFUSED_IN_POOLING
from tests.fakes import LIMITS
from tests.pooling_fleet import EMBEDDER, RERANKER, SIZE, WHOLE_LIMITS, PoolingFleet, cut, numbers
from tests.router.api.conftest import Server, Start
from tests.router.api.openai.pooling import refusal

WHOLE = Pooling(Task.EMBED)


@pytest.fixture
async def server(start: Start) -> Server:
    return await start(WHOLE_LIMITS, facts=EMBEDDER, make_fleet=lambda _: PoolingFleet())


async def embed(server: Server, **fields: object) -> dict[str, Any]:
    response = await server.post("/v1/embeddings", {"input": "Say it", **fields})
    assert response.status == 200, await response.text()
    answer: dict[str, Any] = await response.json()
    return answer


async def ids_of(server: Server, text: str) -> tuple[int, ...]:
    return await server.tokenizer.encode(text)


def floats(vector: list[float]) -> list[float]:
    """The numbers as float32."""
    return [*struct.unpack(f"<{len(vector)}f", struct.pack(f"<{len(vector)}f", *vector))]


async def test_one_text_several_and_token_ids(server: Server) -> None:
    ids = [await ids_of(server, text) for text in ("Say it", "Hello wörld")]
    wanted = [floats(cut(numbers(each, SIZE), WHOLE)) for each in ids]
    one = await embed(server, user="me")
    assert one == {
        "object": "list", "model": "demo", "data": [{"object": "embedding", "index": 0, "embedding": wanted[0]}],
        "usage": {"prompt_tokens": len(ids[0]), "total_tokens": len(ids[0])}}
    assert (await embed(server, input=[*ids[0]]))["data"] == one["data"]
    for inputs in (["Say it", "Hello wörld"], [[*each] for each in ids]):
        answer = await embed(server, input=inputs, model="any")
        assert [each["embedding"] for each in answer["data"]] == wanted
        assert [each["index"] for each in answer["data"]] == [0, 1]
        assert answer["usage"]["total_tokens"] == sum(map(len, ids))
        assert answer["model"] == "any"


async def test_base64_has_the_same_numbers(server: Server) -> None:
    [plain], [coded] = [(await embed(server, encoding_format=form))["data"] for form in ("float", "base64")]
    assert [*struct.unpack(f"<{SIZE}f", b64decode(coded["embedding"]))] == plain["embedding"]


async def test_the_form_of_a_vector(server: Server) -> None:
    for fields, asked in (
        ({"dimensions": 3}, Pooling(Task.EMBED, dimensions=3)),
        ({"normalize": False}, Pooling(Task.EMBED, normalized=False)),
        ({"use_activation": False, "dimensions": SIZE}, Pooling(Task.EMBED, dimensions=SIZE, normalized=False)),
    ):
        [found] = (await embed(server, **fields))["data"]
        assert found["embedding"] == floats(cut(numbers(await ids_of(server, "Say it"), SIZE), asked))
    assert math.hypot(*(await embed(server, dimensions=3))["data"][0]["embedding"]) == pytest.approx(1)


async def test_a_text_is_cut_if_that_is_asked_for(server: Server) -> None:
    ids = await ids_of(server, "one two three four five six")
    assert isinstance(server.fleet, PoolingFleet)
    for fields, wanted in (({}, ids[:4]), ({"truncation_side": "left"}, ids[-4:])):
        answer = await embed(server, input=[*ids], truncate_prompt_tokens=4, **fields)
        assert tuple(server.fleet.texts[-1]) == wanted
        assert answer["usage"]["prompt_tokens"] == 4
    long = " a" * 2000
    refused = await refusal(server, "/v1/embeddings", {"input": long})
    assert refused["param"] == "input"
    assert (await embed(server, input=long, truncate_prompt_tokens=-1))["usage"]["prompt_tokens"] > 100


@pytest.mark.parametrize(("fields", "param", "says"), [
    ({"input": ""}, "input", "cannot be empty"),
    ({"input": []}, "input", "at least 1"),
    ({"input": [[]]}, "input", "cannot be empty"),
    ({"input": ["a", ""]}, "input", "cannot be empty"),
    ({"input": {"a": 1}}, "input", "expected a list"),
    ({"input": ["a", 1]}, "input", "must be a text, a list of texts"),
    ({"input": [-1]}, "input", "token ids must be >= 0"),
    ({"input": [EMBEDDER.vocab_size]}, "input", f"token ids < {EMBEDDER.vocab_size}"),
    ({"dimensions": 0}, "dimensions", f"{SIZE}"),
    ({"dimensions": SIZE + 1}, "dimensions", f"Given: {SIZE + 1}"),
    ({"encoding_format": "hex"}, "encoding_format", "base64"),
    ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "0"),
    ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens", "-2"),
    ({"prompt_name": "unknown"}, "prompt_name", "unknown"),
    ({"messages": [{"role": "user", "content": "a"}]}, "messages", "`messages` is not supported"),
    ({"embed_dtype": "float16"}, "embed_dtype", 'other than "float32", is not supported'),
])
async def test_what_is_wrong_is_told_by_a_sentence(
    server: Server, fields: dict[str, object], param: str, says: str
) -> None:
    error = await refusal(server, "/v1/embeddings", {"input": "a", **fields})
    assert error["param"] == param
    assert says in error["message"]


async def test_unknown_fields_follow_the_rule_of_the_other_routes(server: Server) -> None:
    plain = (await embed(server))["data"]
    refused = {name: neutral for name, neutral in REFUSED_IN_POOLING.items() if name not in EmbeddingBody.model_fields}
    for name in refused:
        error = await refusal(server, "/v1/embeddings", {"input": "a", name: "asked"})
        assert f"`{name}`" in error["message"]
        assert error["message"].endswith(" is not supported")
    neutral = {name: values[0] for name, values in refused.items() if values}
    assert (await embed(server, **neutral, **dict.fromkeys(IGNORED, "asked")))["data"] == plain


async def test_other_models_have_other_routes(start: Start) -> None:
    for facts, fleet in ((RERANKER, PoolingFleet(RERANKER)), (None, None)):
        server = await start() if facts is None else await start(facts=facts, make_fleet=lambda _, fleet=fleet: fleet)
        error = await refusal(server, "/v1/embeddings", {"input": "a"})
        assert error["code"] == "model_not_supported"
        assert ("/v1/rerank" if facts else "/v1/completions") in error["message"]


async def test_the_models_list_tells_what_the_model_does(server: Server, start: Start) -> None:
    [model] = (await (await server.client.get("/v1/models")).json())["data"]
    assert {name: model[name] for name in ("tasks", "vector_size")} == {
        "tasks": ["embed", "embed_all"], "vector_size": SIZE}
    reranker = await start(facts=RERANKER, make_fleet=lambda _: PoolingFleet(RERANKER))
    [model] = (await (await reranker.client.get("/v1/models")).json())["data"]
    assert {name: model[name] for name in ("tasks", "labels")} == {"tasks": ["classify"], "labels": ["LABEL_0"]}


async def test_the_path_of_text_embeddings_inference_is_the_same(server: Server) -> None:
    response = await server.post("/embeddings", {"input": "Say it"})
    assert await response.json() == await embed(server)
    assert "error" in await (await server.post("/embeddings", {"input": 1})).json()


async def test_requests_count_as_others_do(server: Server) -> None:
    await embed(server, input=["a", "b"])
    await server.post("/v1/embeddings", {"input": ""})
    series = server.series()
    assert series["tgi_request_count"] == 2
    assert series["tgi_request_success"] == 1
    assert series['tgi_request_failure{err="validation"}'] == 1
    assert series['penstock_requests{route="/v1/embeddings",status="200"}'] == 1
    await server.until_idle()


async def test_more_texts_than_a_request_may_have(start: Start) -> None:
    server = await start(replace(LIMITS, max_client_batch_size=2), facts=EMBEDDER, make_fleet=lambda _: PoolingFleet())
    error = await refusal(server, "/v1/embeddings", {"input": ["a"] * 3})
    assert error["param"] == "input"
    assert "3" in error["message"]
