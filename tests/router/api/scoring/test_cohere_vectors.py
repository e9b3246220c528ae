"""Cohere's `/v2/embed` and `/v1/embed`."""

import struct
from base64 import b64decode

import pytest

from penstock.router.generation.text_rules import TextRules
from tests.pooling_fleet import EMBEDDER, SIZE, WHOLE_LIMITS, PoolingFleet
from tests.router.api.conftest import Server, Start
from tests.router.api.openai.pooling import ask, refusal

TEXTS = ["Say it", "Hello"]


@pytest.fixture
async def server(start: Start) -> Server:
    return await start(WHOLE_LIMITS, facts=EMBEDDER, make_fleet=lambda _: PoolingFleet())


async def test_every_form_is_made_of_the_same_numbers(server: Server) -> None:
    vectors = [each["embedding"] for each in (await ask(server, "/v1/embeddings", {"input": TEXTS}))["data"]]
    answer = await ask(server, "/v2/embed", {
        "texts": TEXTS, "input_type": "search_document", "embedding_types": ["float", "base64", "binary", "ubinary"]})
    assert (answer["texts"], answer["response_type"]) == (TEXTS, "embeddings_by_type")
    forms = answer["embeddings"]
    assert forms["float"] == vectors
    assert [[*struct.unpack(f"<{SIZE}f", b64decode(text))] for text in forms["base64"]] == vectors
    bits = [[f"{byte:08b}" for byte in each] for each in forms["ubinary"]]
    assert bits == [["".join(str(int(number > 0)) for number in vector)] for vector in vectors]
    assert forms["binary"] == [[byte - 128 for byte in each] for each in forms["ubinary"]]
    number = answer["meta"]["tokens"]["input_tokens"]
    assert answer["meta"] == {"api_version": {"version": "2"}, "billed_units": {"input_tokens": number},
                              "tokens": {"input_tokens": number}}
    assert number > 0


async def test_the_first_version_has_plain_vectors(server: Server) -> None:
    typed = await ask(server, "/v1/embed", {"texts": TEXTS, "embedding_types": ["float"]})
    plain = await ask(server, "/v1/embed", {"texts": TEXTS})
    assert plain["embeddings"] == typed["embeddings"]["float"]
    assert plain["response_type"] == "embeddings_floats"


async def test_texts_in_parts(server: Server) -> None:
    parts = [{"content": [{"type": "text", "text": "Say"}, {"type": "text", "text": "it"}]}]
    assert (await ask(server, "/v2/embed", {"inputs": parts}))["embeddings"] == (
        await ask(server, "/v2/embed", {"texts": ["Say\nit"]}))["embeddings"]


async def test_a_long_text_is_cut_unless_that_is_forbidden(server: Server) -> None:
    long = {"texts": [" a" * 2000]}
    assert isinstance(server.fleet, PoolingFleet)
    await ask(server, "/v2/embed", long)
    await ask(server, "/v2/embed", {**long, "max_tokens": 5})
    assert len(server.fleet.texts[1]) == 5 < len(server.fleet.texts[0]) == WHOLE_LIMITS.max_input_tokens
    assert (await refusal(server, "/v2/embed", {**long, "truncate": "NONE"}))["param"] == "texts"
    message = (await refusal(server, "/v2/embed", {**long, "truncate": "NONE", "max_tokens": 5}))["message"]
    assert "`texts` must have less than 5 tokens" in message


async def test_the_kind_of_a_text_chooses_its_prompt(start: Start) -> None:
    rules = TextRules({"query": "query: ", "Clustering": "cluster: "})
    server = await start(WHOLE_LIMITS, facts=EMBEDDER, make_fleet=lambda _: PoolingFleet(), texts=rules)
    assert isinstance(server.fleet, PoolingFleet)
    for kind, prompt in (("search_query", "query: "), ("clustering", "cluster: "), ("search_document", "")):
        await ask(server, "/v2/embed", {"texts": ["a b"], "input_type": kind})
        assert tuple(server.fleet.texts[-1]) == await server.tokenizer.encode(f"{prompt}a b")
    error = await refusal(server, "/v2/embed", {"texts": ["a"], "input_type": "classification"})
    assert error["message"].endswith("its prompts are for `query`, `Clustering`. Given: `classification`")


@pytest.mark.parametrize(("fields", "says"), [
    ({}, "Given: none"), ({"texts": ["a"], "inputs": [{"content": [{"type": "text", "text": "a"}]}]}, "Given: both"),
    ({"texts": []}, "at least 1"), ({"texts": [""]}, "cannot be empty"),
    ({"texts": ["a"], "output_dimension": SIZE + 1}, f"`output_dimension` must be > 0 and <= {SIZE}"),
    ({"texts": ["a"], "embedding_types": ["int8"]}, "int8"),
    ({"images": ["data:"]}, "`images`"),
])
async def test_what_is_wrong_is_told_by_a_sentence(server: Server, fields: dict[str, object], says: str) -> None:
    assert says in (await refusal(server, "/v2/embed", fields))["message"]
