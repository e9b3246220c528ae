"""Cohere's and Jina's reranking, and vLLM's scores of pairs."""

import re
from dataclasses import replace
from typing import Any

import pytest

from penstock.contract.facts import Facts
from penstock.contract.pooling import YES_NO, Task
from penstock.router.api.scoring.bodies import RerankBody, ScoreBody
from penstock.router.generation.other_fields import IGNORED, REFUSED_IN_POOLING
from penstock.router.generation.text_rules import TextRules
from penstock.router.pooling.scores import SIMILARITIES, activated
from penstock.router.text.tokenizer import Tokenizer
from tests.fakes import FACTS
from tests.pooling_fleet import CLASSIFIER, EMBEDDER, RERANKER, SIZE, PoolingFleet, numbers
from tests.router.api.conftest import Server, Start
from tests.router.api.openai.pooling import ask, refusal

QUERY = "What is it?"
DOCUMENTS = ["A pipe", "Rome is in Italy.", "It is a pipe that leads water."]
JUDGE = replace(FACTS, tasks=frozenset({Task.CLASSIFY}), pools_last=True, pooling=YES_NO, labels=("LABEL_0",),
                activation="sigmoid")


async def serve(start: Start, facts: Facts = RERANKER) -> Server:
    return await start(facts=facts, make_fleet=lambda _: PoolingFleet(facts))


@pytest.fixture
async def server(start: Start) -> Server:
    return await serve(start)


def raw_scores(server: Server) -> list[float]:
    """The raw scores of the texts that the fleet was asked for."""
    assert isinstance(server.fleet, PoolingFleet)
    return [numbers(text, 1)[0] for text in server.fleet.texts]


async def test_documents_are_ranked(server: Server) -> None:
    answer = await ask(server, "/v2/rerank", {"model": "any", "query": QUERY, "documents": DOCUMENTS})
    scores = activated(raw_scores(server), "sigmoid")
    order = sorted(range(3), key=lambda index: -scores[index])
    assert [each["index"] for each in answer["results"]] == order
    assert [each["relevance_score"] for each in answer["results"]] == pytest.approx([scores[index] for index in order])
    assert all(each.keys() == {"index", "relevance_score"} for each in answer["results"])
    assert isinstance(server.fleet, PoolingFleet)
    num_tokens = sum(map(len, server.fleet.texts))
    assert answer["usage"] == {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    assert answer["meta"] == {"api_version": {"version": "2"}, "billed_units": {"search_units": 1},
                              "tokens": {"input_tokens": num_tokens}}
    assert answer["model"] == "any"
    assert answer["id"].startswith("rerank-")


async def test_the_best_alone_with_their_texts(server: Server) -> None:
    documents = [DOCUMENTS[0], {"text": DOCUMENTS[1]}, DOCUMENTS[2]]
    body = {"query": QUERY, "documents": documents, "return_documents": True}
    every = (await ask(server, "/v1/rerank", {**body, "top_n": 0}))["results"]
    assert [each["document"]["text"] for each in every] == [DOCUMENTS[each["index"]] for each in every]
    assert (await ask(server, "/v1/rerank", {**body, "top_n": 2}))["results"] == every[:2]
    assert (await ask(server, "/v1/rerank", {**body, "top_n": 9}))["results"] == every


async def test_raw_scores(server: Server) -> None:
    answer = await ask(server, "/v1/rerank", {"query": QUERY, "documents": DOCUMENTS, "use_activation": False})
    assert [each["relevance_score"] for each in answer["results"]] == pytest.approx(
        sorted(raw_scores(server), reverse=True), abs=1e-6)


async def test_long_documents_are_cut(server: Server) -> None:
    assert isinstance(server.fleet, PoolingFleet)
    body = {"query": QUERY, "documents": [DOCUMENTS[2]]}
    beginning = await server.tokenizer.beginning(DOCUMENTS[2], 3)
    assert DOCUMENTS[2].startswith(beginning)
    await ask(server, "/v1/rerank", {**body, "max_tokens_per_doc": 3, "max_tokens_per_query": 2})
    await ask(server, "/v1/rerank", {
        "query": await server.tokenizer.beginning(QUERY, 2), "documents": [beginning]})
    await ask(server, "/v1/rerank", {**body, "max_tokens_per_doc": 300})
    assert server.fleet.texts[0] == server.fleet.texts[1]
    assert len(server.fleet.texts[0]) < len(server.fleet.texts[2])


async def test_an_embedders_scores_are_cosines(start: Start) -> None:
    server = await serve(start, EMBEDDER)
    texts = [QUERY, *DOCUMENTS]
    vectors = [each["embedding"] for each in (await ask(server, "/v1/embeddings", {"input": texts}))["data"]]
    cosines = [sum(a * b for a, b in zip(vectors[0], vector, strict=True)) for vector in vectors[1:]]
    ranked = await ask(server, "/v2/rerank", {"query": QUERY, "documents": DOCUMENTS})
    assert [each["relevance_score"] for each in ranked["results"]] == pytest.approx(
        sorted(cosines, reverse=True), abs=1e-6)
    scored = await ask(server, "/v1/score", {"queries": QUERY, "documents": [*DOCUMENTS, QUERY]})
    assert [each["score"] for each in scored["data"]] == pytest.approx([*cosines, 1.0], abs=1e-6)
    assert isinstance(server.fleet, PoolingFleet)
    assert len(server.fleet.texts) == 12, "each text of a request is computed once"


@pytest.mark.parametrize("similarity", ["dot", "manhattan"])
async def test_vectors_are_compared_as_their_checkpoint_says(start: Start, similarity: str) -> None:
    server = await start(facts=EMBEDDER, make_fleet=lambda _: PoolingFleet(EMBEDDER),
                         texts=TextRules(similarity=similarity))
    answer = await ask(server, "/v1/score", {"queries": QUERY, "documents": DOCUMENTS})
    vectors = [numbers(await server.tokenizer.encode(text), SIZE) for text in (QUERY, *DOCUMENTS)]
    wanted = [SIMILARITIES[similarity](vectors[0], vector) for vector in vectors[1:]]
    assert [each["score"] for each in answer["data"]] == pytest.approx(wanted, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("names", [
    ("queries", "documents"), ("queries", "items"), ("text_1", "text_2"), ("data_1", "data_2")])
async def test_pairs_of_one_and_one_one_and_many_many_and_many(server: Server, names: tuple[str, str]) -> None:
    async def scores(*sides: object) -> list[float]:
        answer = await ask(server, "/score", dict(zip(names, sides, strict=True)))
        assert answer["id"].startswith("score-")
        assert (answer["object"], answer["model"]) == ("list", "demo")
        assert [(each["index"], each["object"]) for each in answer["data"]] == [
            (index, "score") for index in range(len(answer["data"]))]
        return [each["score"] for each in answer["data"]]

    one = [*(await scores(QUERY, DOCUMENTS[0])), *(await scores([QUERY], DOCUMENTS[1:]))]
    assert len(one) == 3
    assert await scores([QUERY] * 3, DOCUMENTS) == await scores(QUERY, DOCUMENTS) == one


async def test_a_language_model_is_asked_whether_the_document_fits(start: Start) -> None:
    server = await serve(start, JUDGE)
    assert isinstance(server.fleet, PoolingFleet)
    await ask(server, "/v1/rerank", {"query": QUERY, "documents": DOCUMENTS[:1]})
    await ask(server, "/v1/rerank", {"query": QUERY, "documents": DOCUMENTS[:1], "instruction": "Find pipes"})
    [usual, told] = [server.tokenizer.decode(text) for text in server.fleet.texts]
    assert usual == (
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
        'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
        "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
        "<Query>: What is it?\n<Document>: A pipe<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert "<Instruct>: Find pipes\n<Query>: What is it?\n" in told


async def test_the_question_ends_as_it_should_where_the_document_is_cut(start: Start) -> None:
    server = await serve(start, JUDGE)
    assert isinstance(server.fleet, PoolingFleet)
    body: dict[str, Any] = {"query": QUERY, "documents": [" a" * 500], "truncate_prompt_tokens": 200}
    await ask(server, "/v1/rerank", body)
    [text] = server.fleet.texts
    assert len(text) == 200
    assert server.tokenizer.decode(text).endswith(" a<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")


async def test_a_question_that_has_no_room_for_a_text_is_refused(start: Start) -> None:
    server = await serve(start, JUDGE)
    response = await server.post("/v1/rerank", {
        "query": QUERY, "documents": DOCUMENTS[:1], "truncate_prompt_tokens": 5})
    assert response.status == 400
    assert re.search("`truncate_prompt_tokens` must be > [0-9]+, the tokens of the question .* Given: 5",
                     await response.text())


@pytest.mark.parametrize(("fields", "param", "says"), [
    ({"query": ""}, "query", "cannot be empty"),
    ({"documents": []}, "documents", "at least 1"),
    ({"documents": "a"}, "documents", "expected a list"),
    ({"documents": ["a", ""]}, "documents", "cannot be empty"),
    ({"documents": [{"title": "a"}]}, "documents[0]", "expected a string"),
    ({"top_n": -1}, "top_n", "-1"),
    ({"max_tokens_per_doc": 0}, "max_tokens_per_doc", "0"),
    ({"instruction": "Look"}, "instruction", "is not supported"),
    ({"rank_fields": ["title"]}, "rank_fields", "is not supported"),
])
async def test_what_is_wrong_is_told_by_a_sentence(
    server: Server, fields: dict[str, object], param: str, says: str
) -> None:
    error = await refusal(server, "/v1/rerank", {"query": QUERY, "documents": DOCUMENTS, **fields})
    assert error["param"] == param
    assert says in error["message"]


@pytest.mark.parametrize(("body", "says"), [
    ({}, "Given: none"),
    ({"queries": "a"}, "Given: queries"),
    ({"queries": "a", "text_2": "a"}, "Given: queries, text_2"),
    ({"queries": "a", "documents": "b", "items": "c"}, "Given: queries, documents, items"),
    ({"queries": ["a", "b"], "documents": ["c", "d", "e"]}, "Given: 2 and 3"),
    ({"queries": ["a", "b"], "documents": "c"}, "Given: 2 and 1"),
    ({"queries": [], "documents": "c"}, "at least 1"),
])
async def test_pairs_that_are_none(server: Server, body: dict[str, object], says: str) -> None:
    assert says in (await refusal(server, "/v1/score", body))["message"]


async def test_unknown_fields_follow_the_rule_of_the_other_routes(server: Server) -> None:
    bodies = {"/v1/rerank": ({"query": QUERY, "documents": DOCUMENTS}, RerankBody),
              "/v1/score": ({"queries": QUERY, "documents": DOCUMENTS}, ScoreBody)}
    for path, (body, schema) in bodies.items():
        refused = {name: neutral for name, neutral in REFUSED_IN_POOLING.items() if name not in schema.model_fields}
        for name in refused:
            error = await refusal(server, path, {**body, name: "asked"})
            assert f"`{name}`" in error["message"]
        neutral = {name: values[0] for name, values in refused.items() if values}
        await ask(server, path, {**body, **neutral, **dict.fromkeys(IGNORED, "asked")})


async def test_models_that_rank_nothing_say_what_they_do(start: Start) -> None:
    for facts in (CLASSIFIER, FACTS):
        server = await serve(start, facts)
        for path, body in (("/v2/rerank", {"query": "a", "documents": ["b"]}),
                           ("/score", {"queries": "a", "documents": "b"})):
            error = await refusal(server, path, body)
            assert error["code"] == "model_not_supported"
            assert ("/predict" if facts is CLASSIFIER else "/v1/completions") in error["message"]


async def test_no_text_is_read_for_a_model_that_ranks_nothing(start: Start) -> None:
    server = await serve(start, CLASSIFIER)
    async with server.groups.permit(server.groups.limits.max_concurrent_requests):
        error = await refusal(server, "/v1/rerank", {"query": "a", "documents": ["b"], "max_tokens_per_doc": 1})
        assert error["code"] == "model_not_supported"


async def test_a_question_is_read_once_there_is_a_permit(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    server = await serve(start, JUDGE)
    async with server.groups.permit(server.groups.limits.max_concurrent_requests):
        monkeypatch.delattr(Tokenizer, "encode")
        monkeypatch.delattr(Tokenizer, "encode_whole")
        response = await server.post("/v1/rerank", {"query": QUERY, "documents": DOCUMENTS})
        assert response.status == 429


async def test_the_characters_of_pairs_are_told_whoever_ranks(start: Start) -> None:
    server = await serve(start, JUDGE)
    response = await server.post("/rerank", {"query": "ab", "texts": ["cde"]})
    assert response.headers["x-compute-characters"] == "5"
