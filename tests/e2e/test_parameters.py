"""Parameters on the demo model and two shards, each by what it must do to the answer."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import aiohttp
import pytest

from tests.e2e.client import many_clients
from tests.e2e.server import Server

PROMPT = "Once upon a time there was a small"


@pytest.fixture
async def session(server: Server) -> AsyncIterator[aiohttp.ClientSession]:
    async with many_clients() as session:
        yield session


async def post(session: aiohttp.ClientSession, server: Server, path: str, body: dict[str, Any]) -> dict[str, Any]:
    async with session.post(server.url + path, json=body) as response:
        answer: dict[str, Any] = await response.json()
        assert response.status == 200, answer
    return answer


async def complete(session: aiohttp.ClientSession, server: Server, **fields: object) -> dict[str, Any]:
    body = {
        "prompt": PROMPT, "max_tokens": 24, "temperature": 0, "ignore_eos": True, "return_token_ids": True, **fields}
    return await post(session, server, "/v1/completions", body)


async def details(session: aiohttp.ClientSession, server: Server, **parameters: object) -> dict[str, Any]:
    body = {"inputs": PROMPT, "parameters": {
        "max_new_tokens": 24, "ignore_eos": True, "details": True, **parameters}}
    found: dict[str, Any] = (await post(session, server, "/generate", body))["details"]
    return found


async def test_the_prompt_is_scored_as_the_answer_was(session: aiohttp.ClientSession, server: Server) -> None:
    """A generated token has the same logprob, bit for bit, when it is part of a prompt; and the same likeliest."""
    choice = (await complete(session, server, logprobs=3))["choices"][0]
    ids = choice["prompt_token_ids"] + choice["token_ids"]
    again = (await complete(session, server, prompt=ids, echo=True, max_tokens=0, logprobs=3))["choices"][0]
    assert again["text"].startswith(PROMPT)
    for name in ("tokens", "token_logprobs", "top_logprobs"):
        assert again["logprobs"][name][-24:] == choice["logprobs"][name]
    assert again["logprobs"]["token_logprobs"][0] is None
    for top in choice["logprobs"]["top_logprobs"]:
        assert all(more >= less for more, less in pairwise(top.values()))


async def test_samples_differ_and_can_be_repeated(session: aiohttp.ClientSession, server: Server) -> None:
    first, again = await asyncio.gather(*(complete(session, server, n=3, seed=5, temperature=1.5) for _ in range(2)))
    assert len({tuple(choice["token_ids"]) for choice in first["choices"]}) == 3
    assert first["choices"] == again["choices"]
    alone = await complete(session, server, seed=5, temperature=1.5)
    assert alone["choices"][0] == first["choices"][0]


async def test_many_prompts_are_answered_as_each_alone(session: aiohttp.ClientSession, server: Server) -> None:
    prompts = [PROMPT, "def main(", "The answer is", "x"]
    together = await complete(session, server, prompt=prompts)
    for choice, prompt in zip(together["choices"], prompts, strict=True):
        alone = await complete(session, server, prompt=prompt)
        assert {**choice, "index": 0} == alone["choices"][0]


async def test_the_best_of_candidates(session: aiohttp.ClientSession, server: Server) -> None:
    best = await details(session, server, best_of=4, do_sample=True, temperature=1.5)
    others = best["best_of_sequences"]
    means = [sum(token["logprob"] for token in sequence["tokens"]) / 24 for sequence in (best, *others)]
    assert len(means) == 4
    assert max(means) == means[0]
    repeated = await details(session, server, seed=others[0]["seed"], do_sample=True, temperature=1.5)
    assert repeated["tokens"] == others[0]["tokens"]


async def test_a_bias_makes_a_token_certain_or_impossible(session: aiohttp.ClientSession, server: Server) -> None:
    plain = (await complete(session, server))["choices"][0]["token_ids"]
    forced = await complete(session, server, logit_bias={"300": 100})
    assert set(forced["choices"][0]["token_ids"]) == {300}
    banned = await complete(session, server, logit_bias={str(plain[0]): -100})
    assert plain[0] not in banned["choices"][0]["token_ids"]


async def test_penalties_that_count(session: aiohttp.ClientSession, server: Server) -> None:
    """With the token that a bias forces: each time that it was given costs."""
    bias = {"300": 6}
    for fields in ({"frequency_penalty": 2}, {"presence_penalty": 2}):
        plain, less = [(await complete(session, server, logit_bias=bias, **more))["choices"][0]["token_ids"]
                       for more in ({}, fields)]
        assert plain.count(300) > 1
        assert less.count(300) < plain.count(300)


async def test_a_token_ends_an_answer_but_not_too_early(session: aiohttp.ClientSession, server: Server) -> None:
    plain = (await complete(session, server))["choices"][0]["token_ids"]
    [stopped] = (await complete(session, server, stop_token_ids=[plain[5]]))["choices"]
    assert stopped["token_ids"] == plain[:plain.index(plain[5]) + 1]
    [before] = (await complete(session, server, max_tokens=len(stopped["token_ids"]) - 1))["choices"]
    assert stopped["text"] == before["text"]
    later = (await complete(session, server, stop_token_ids=[plain[5]], min_tokens=20))["choices"][0]["token_ids"]
    assert len(later) >= 20
    assert plain[5] not in later[:20]


async def test_the_likeliest_tokens_of_a_greedy_answer(session: aiohttp.ClientSession, server: Server) -> None:
    found = await details(session, server, top_n_tokens=5)
    for top, token in zip(found["top_tokens"], found["tokens"], strict=True):
        assert len(top) == 5
        assert (top[0]["id"], top[0]["logprob"], top[0]["text"]) == (token["id"], token["logprob"], token["text"])


async def test_min_p_of_1_leaves_the_likeliest(session: aiohttp.ClientSession, server: Server) -> None:
    greedy = await complete(session, server)
    sampled = await complete(session, server, temperature=1.0, min_p=1, seed=3)
    assert sampled["choices"][0]["token_ids"] == greedy["choices"][0]["token_ids"]
