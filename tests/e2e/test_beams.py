"""Beam searches by HTTP, the router, the wire and a shard: the tokens and scores are those of transformers."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
import torch
from aiohttp.test_utils import TestClient

from penstock.router.grammar.compiler import GrammarCompiler
from penstock.router.grammar.spec import GrammarSpec
from tests.beam_reference import Found, tokenizer, transformers_answers
from tests.fakes import LIMITS
from tests.one_process import router_and_shard
from tests.paths import DEMO_MODEL

pytestmark = pytest.mark.asyncio(loop_scope="module")

PENALTIES = (-1.0, 0.0, 0.5, 1.0, 2.0)
EARLY = (False, True, "never")
FREQUENT = (16, 201, 279, 315, 319, 411)
WORDS = ("time", "path", "was", "small", "list", "the", "of", "self", "return", "that", "dog", "in", "if")
PROMPTS = ("Once upon a time there was a small", "def walk(path):", "The", "import os\n\n\ndef", "What is the")


def spelled(*words: str) -> list[list[int]]:
    """The tokens of words, and of those behind a space if just the first is another one."""
    found = []
    for word in words:
        first, later = (tokenizer()(text)["input_ids"] for text in (word, f" {word}"))
        found += [first, later] if len(first) == len(later) and first[0] != later[0] else [first]
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TestClient]:
    limits = replace(LIMITS, speculate=3)
    async with router_and_shard(tmp_path_factory.mktemp("beams"), limits, dtype="float32") as client:
        yield client


async def generate(client: TestClient, inputs: str, **parameters: Any) -> list[Found]:
    """The answers that the server finds, the best first."""
    response = await client.post("/generate", json={"inputs": inputs, "parameters": {"details": True, **parameters}})
    content = await response.json()
    assert response.status == 200, content
    details = content["details"]
    others = details.pop("best_of_sequences", [])
    return [Found([token["id"] for token in each["tokens"]], each["score"]) for each in (details, *others)]


def check(found: list[Found], expected: list[Found], case: object) -> None:
    """Scores of transformers are sums in float32, so those that are large differ by a little more."""
    assert [each.tokens for each in found] == [each.tokens for each in expected], case
    assert [each.score for each in found] == pytest.approx([each.score for each in expected], abs=1e-4, rel=3e-6), case


def cases(number: int) -> list[tuple[str, dict[str, Any]]]:
    """Every length penalty with every form of early stopping, every number of beams with every number of stop tokens,
    and all else at random. A few prompts are longer than a step is."""
    draw, made = random.Random(1), []
    for place in range(number):
        num_beams = 2 + place % 4
        words = draw.choices(WORDS, k=draw.randint(200, 500) if place % 19 == 18 else draw.randint(0, 40))
        made.append((" ".join([draw.choice(PROMPTS), *words]), {
            "num_beams": num_beams, "num_return_sequences": draw.randint(1, num_beams),
            "length_penalty": PENALTIES[place % 5], "early_stopping": EARLY[place % 3],
            "stop_token_ids": draw.sample(FREQUENT, (place + place // 4) % 4), "max_new_tokens": draw.randint(1, 20)}))
    return made


async def check_cases(client: TestClient, made: list[tuple[str, dict[str, Any]]]) -> None:
    """Asks 20 at a time."""
    num_answers, num_early = 0, 0
    for some in (made[begin:begin + 20] for begin in range(0, len(made), 20)):
        found = await asyncio.gather(*(generate(client, inputs, **parameters) for inputs, parameters in some))
        for (inputs, parameters), answers in zip(some, found, strict=True):
            theirs = {**parameters, "eos_token_id": [2, *parameters["stop_token_ids"]]}
            del theirs["stop_token_ids"]
            check(answers, transformers_answers(tokenizer()(inputs)["input_ids"], **theirs), (inputs, parameters))
            num_answers += len(answers)
            num_early += sum(len(each.tokens) < parameters["max_new_tokens"] for each in answers)
    assert num_early > num_answers // 4, "hardly an answer ended by itself"


async def test_answers_are_those_of_transformers(client: TestClient) -> None:
    await check_cases(client, cases(4))


async def test_each_form_of_early_stopping_finds_others(client: TestClient) -> None:
    inputs, common = PROMPTS[3], {"num_beams": 3, "num_return_sequences": 3, "max_new_tokens": 16}
    forms = [(inputs, {**common, "early_stopping": form, "stop_token_ids": [16, 315]}) for form in EARLY]
    await check_cases(client, forms)
    found = [await generate(client, inputs, **parameters) for inputs, parameters in forms]
    assert len({tuple(tuple(each.tokens) for each in answers) for answers in found}) > 1


@pytest.mark.slow
async def test_many_answers_are_those_of_transformers(client: TestClient) -> None:
    await check_cases(client, cases(60))


@pytest.mark.parametrize(("ours", "theirs"), [
    ({"repetition_penalty": 1.5}, {"repetition_penalty": 1.5}),
    ({"logit_bias": {"300": 2.5, "13": -3.0}}, {"sequence_bias": [[[300], 2.5], [[13], -3.0]]}),
    ({"stop_token_ids": [13, 200], "min_tokens": 4}, {"eos_token_id": [2, 13, 200], "min_new_tokens": 4}),
    ({"stop_token_ids": [13, 200]}, {"eos_token_id": [2, 13, 200]}),
    ({"ignore_eos": True}, {"eos_token_id": None}),
    ({"bad_words": ["self.name", "file.", "it"]}, {"bad_words_ids": None}),
    ({"allowed_token_ids": [*range(2, 700, 3)]}, {"suppress_tokens": [
        token for token in range(8192) if token not in range(2, 700, 3)]}),
    ({"stop": [" a", "\n"]}, {"stop_strings": [" a", "\n"]}),
], ids=str)
async def test_what_changes_the_tokens(client: TestClient, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    common = {"num_beams": 3, "num_return_sequences": 3, "max_new_tokens": 10}
    if "bad_words" in ours:
        theirs = {"bad_words_ids": spelled(*ours["bad_words"])}
    for inputs in PROMPTS[:2]:
        expected = transformers_answers(tokenizer()(inputs)["input_ids"], **common, **theirs)
        check(await generate(client, inputs, **common, **ours), expected, inputs)


async def test_each_beam_follows_the_grammar(client: TestClient) -> None:
    """As it does with a function of transformers that allows the same tokens."""
    inputs, regex = "Once upon a time there was", "(a|the) (small|big|old){1,2} (dog|cat|house)s?"
    ids, common = tokenizer()(inputs)["input_ids"], {"num_beams": 4, "num_return_sequences": 4, "max_new_tokens": 12}
    compiler = GrammarCompiler(DEMO_MODEL / "tokenizer.json", 8192, frozenset({2}))
    grammar = await compiler.compile(GrammarSpec("regex", regex))

    def allowed(_: int, tokens: torch.Tensor) -> list[int]:
        matcher = grammar.start()
        for token_id in tokens.tolist()[len(ids):]:
            if token_id != 1 and not matcher.is_complete:
                matcher.push(token_id)
        mask = int.from_bytes(matcher.mask(), "little")
        return [token_id for token_id in range(8192) if mask >> token_id & 1]

    expected = transformers_answers(ids, **common, prefix_allowed_tokens_fn=allowed)
    check(await generate(client, inputs, **common, grammar={"type": "regex", "value": regex}), expected, regex)
    assert len({tokenizer().decode(each.tokens) for each in expected}) > 1
    compiler.close()


async def test_fewer_answers_come_where_no_more_follow_the_grammar(client: TestClient) -> None:
    """There are two, and four are asked for."""
    parameters = {"num_beams": 4, "num_return_sequences": 4, "max_new_tokens": 4, "details": True}
    response = await client.post("/generate", json={"inputs": "Say a or b: ", "parameters": {
        **parameters, "grammar": {"type": "regex", "value": "a|b"}}})
    content = await response.json()
    assert response.status == 200, content
    details = content["details"]
    [other] = details["best_of_sequences"]
    texts = [content["generated_text"], other["generated_text"]]
    assert sorted(texts) == ["a", "b"]
    assert details["score"] >= other["score"]
    fields = {"max_tokens": 4, "n": 4, "use_beam_search": True, "temperature": 0,
              "structured_outputs": {"regex": "a|b"}}
    response = await client.post("/v1/completions", json={"prompt": ["Say a or b: ", "Say "], **fields})
    content = await response.json()
    assert response.status == 200, content
    assert [(each["index"], each["text"]) for each in content["choices"]][:2] == [*enumerate(texts)]
    assert [each["index"] for each in content["choices"]] == [0, 1, 2, 3]
    assert content["usage"]["completion_tokens"] == 8
    response = await client.post("/v1/chat/completions", json={
        "messages": [{"role": "user", "content": "Say a or b"}], **fields})
    content = await response.json()
    assert response.status == 200, content
    assert sorted(each["message"]["content"] for each in content["choices"]) == ["a", "b"]
    assert [each["index"] for each in content["choices"]] == [0, 1]
    assert content["usage"]["completion_tokens"] == 4


async def test_openais_routes(client: TestClient) -> None:
    """There `n` is the number of beams, all of whose answers are given."""
    inputs = PROMPTS[0]
    expected = [each.tokens for each in transformers_answers(
        tokenizer()(inputs)["input_ids"], 3, 9, num_return_sequences=3, length_penalty=0.5, early_stopping=True)]
    fields = {"max_tokens": 9, "n": 3, "use_beam_search": True, "length_penalty": 0.5, "early_stopping": True,
              "temperature": 0, "return_token_ids": True}
    response = await client.post("/v1/completions", json={"prompt": inputs, **fields})
    content = await response.json()
    assert response.status == 200, content
    assert [choice["token_ids"] for choice in content["choices"]] == expected
    assert [choice["index"] for choice in content["choices"]] == [0, 1, 2]
    assert content["usage"]["completion_tokens"] == sum(map(len, expected))
    several = await (await client.post("/v1/completions", json={"prompt": [inputs, "The", inputs], **fields})).json()
    assert [choice["token_ids"] for choice in several["choices"][:3]] == expected
    assert [choice["token_ids"] for choice in several["choices"][6:]] == expected
    chat = await client.post("/v1/chat/completions", json={
        "messages": [{"role": "user", "content": inputs}], "logprobs": True, **fields})
    choices = (await chat.json())["choices"]
    scores = [sum(token["logprob"] for token in choice["logprobs"]["content"]) / len(choice["token_ids"]) ** 0.5
              for choice in choices]
    assert len(choices) == 3
    assert scores == sorted(scores, reverse=True)


async def test_an_answer_can_be_had_again(client: TestClient) -> None:
    body = {"inputs": PROMPTS[1], "parameters": {"num_beams": 3, "max_new_tokens": 8}}
    first = await client.post("/generate", json=body)
    again = await client.post("/generate", json=body, headers={"penstock-answer": first.headers["penstock-answer"]})
    assert (again.status, await again.json()) == (200, await first.json())
