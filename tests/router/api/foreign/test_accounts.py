"""What the answers of servers elsewhere tell of their tokens is counted, and budgets hold for them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from penstock.router.api.http.access import Access
from penstock.router.foreign.told_tokens import NONE, ToldTokens, of_answer, of_events
from penstock.router.keys import Keys
from tests.eventually import until
from tests.router.api.accounts import PRICES, Accounts, accounts
from tests.router.api.conftest import Server
from tests.router.api.foreign.conftest import Front, Stranger, url_of
from tests.router.api.foreign.test_forwarding import CHAT, GENERATE, PROMPT, ask

__all__ = ["accounts"]

STREAMED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
RESPONSE = {"input": "Who?", "max_output_tokens": 16, "temperature": 0}
MESSAGE = {"messages": CHAT["messages"], "max_tokens": 9, "temperature": 0}


@pytest.mark.parametrize(("path", "body", "api"), [
    ("/v1/chat/completions", CHAT, "openai"), ("/v1/chat/completions", {**CHAT, **STREAMED}, "openai"),
    ("/v1/completions", PROMPT, "openai"), ("/v1/completions", {**PROMPT, **STREAMED}, "tgi"),
    ("/v1/responses", RESPONSE, "openai"), ("/v1/responses", {**RESPONSE, "stream": True}, "openai"),
    ("/v1/messages", MESSAGE, "openai"), ("/v1/messages", {**MESSAGE, "stream": True}, "openai"),
    ("/generate", GENERATE, "tgi"), ("/generate_stream", {"inputs": "Who?", "parameters": {
        "max_new_tokens": 9, "details": True}}, "tgi")])
async def test_they_are_those_of_the_other_servers_own_accounts(
    front: Front, other: Server, accounts: Accounts, path: str, body: dict[str, Any], api: str
) -> None:
    server = await front(far={"url": url_of(other), "api": api, "model": "demo"}, make_around=accounts.around())
    assert (await ask(server, path, body, **{"penstock-model": "far"}))[0] == 200
    [told] = (await (await server.client.get("/v1/usage")).json())["data"]
    generated = other.series()["penstock_generated_tokens_total"]
    assert (told["model"], told["requests"], told["tokens"]["output"]) == ("far", 1, generated)
    if api == "openai" or "prompt" in body:
        computed = other.series()["penstock_prompt_tokens_total"]
        assert told["tokens"]["input"] == told["tokens"]["computed"] == computed
    assert told["cost"] != "0"


async def test_budgets_hold_and_refusals_cost_nothing(front: Front, stranger: Stranger, accounts: Accounts) -> None:
    async def answer(request: web.Request) -> web.Response:
        status = 400 if "bad" in await request.text() else 200
        return web.json_response({"usage": {"prompt_tokens": 5, "completion_tokens": 1}}, status=status)

    accounts.set(**PRICES, budgets=[{"tokens": 6}])
    stranger.handler = answer
    server = await front(far={"url": stranger.url}, make_around=accounts.around())
    asked = [(await ask(server, "/v1/completions", {**PROMPT, "prompt": prompt, "model": "far"}))[0]
             for prompt in ("bad", "a", "a")]
    assert asked == [400, 200, 429]
    assert len(stranger.bodies) == 2
    [told] = (await (await server.client.get("/v1/usage")).json())["data"]
    assert (told["requests"], told["tokens"]["input"]) == (1, 5)


async def test_whoever_leaves_before_an_answer_has_begun_pays_nothing(
    front: Front, stranger: Stranger, accounts: Accounts
) -> None:
    came, may_answer = asyncio.Event(), asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        came.set()
        await may_answer.wait()
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: {}\n\n")
        await asyncio.Event().wait()
        return response

    stranger.handler = answer
    server = await front(far={"url": stranger.url}, make_around=accounts.around())
    body = {**PROMPT, "model": "far", "stream": True}
    asked = asyncio.create_task(server.client.post("/v1/completions", json=body))
    await came.wait()
    asked.cancel()
    await until(lambda: stranger.num_left == 1)
    assert (await (await server.client.get("/v1/usage")).json())["data"] == []
    may_answer.set()
    begun = await server.client.post("/v1/completions", json=body)
    await begun.content.readline()
    begun.close()
    await until(lambda: server.series().get('penstock_usage_requests_total{key="",model="far"}'))


async def test_counting_tokens_is_free_and_budgets_come_before_rates(
    front: Front, stranger: Stranger, accounts: Accounts, tmp_path: Path
) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"usage": {"prompt_tokens": 5, "completion_tokens": 1}})

    keys = tmp_path / "keys"
    keys.write_text("# name: alice\n# rate: 1/h\nsk-a\n")
    accounts.set(**PRICES, budgets=[{"tokens": 6}])
    stranger.handler = answer
    server = await front(far={"url": stranger.url}, access=Access(Keys((), keys)), make_around=accounts.around())
    statuses = []
    for path in ("count_tokens", "", "", "count_tokens"):
        body = {**PROMPT, "model": "far"} if not path else {"messages": CHAT["messages"], "model": "far"}
        status, told, _ = await ask(
            server, f"/v1/messages/{path}" if path else "/v1/completions", body, authorization="Bearer sk-a")
        statuses.append((status, b"insufficient_quota" in told))
    assert statuses == [(200, False), (200, False), (429, True), (200, False)]
    response = await server.client.get("/v1/usage", headers={"authorization": "Bearer sk-a"})
    [told] = (await response.json())["data"]
    assert (told["requests"], told["tokens"]["input"]) == (1, 5)


@pytest.mark.parametrize(("content", "expected"), [
    ({"usage": {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}}, (9, 4, 2)),
    ({"usage": {"input_tokens": 9, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}}}, (9, 4, 2)),
    ({"usage": {"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 1}},
     (9, 3, 2)),
    ([{"details": {"generated_tokens": 2, "input_length": 9}}], (9, 0, 2)),
    ({"usage": {"prompt_tokens": -9, "completion_tokens": "x"}}, (0, 0, 0)), ({"usage": [1]}, (0, 0, 0)),
    ({"usage": {"prompt_tokens": 1.5, "completion_tokens": 10**30}}, (0, 0, 0))])
def test_the_words_of_each_api(content: Any, expected: tuple[int, int, int]) -> None:
    body = json.dumps(content).encode()
    assert of_answer(body, {}) == of_events(b"data: " + body + b"\n\n", NONE) == ToldTokens(*expected)


def test_the_latest_numbers_of_a_stream_hold() -> None:
    told = NONE
    for event in (b'event: message_start\ndata: {"message": {"usage": {"input_tokens": 7, "output_tokens": 1}}}\n\n',
                  b'data: {"usage": null}\n\ndata: {"usage": {"output_tokens": 5}}\n\ndata: [DONE]\n\n', b": ping\n\n"):
        told = of_events(event, told)
    assert told == ToldTokens(7, 0, 5)
