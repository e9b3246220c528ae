"""Answers to lines of batches: those of the routes over HTTP, errors included."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from penstock.router.api.whole_answers import EMBEDDINGS, ROUTES, whole_answer
from penstock.router.batches import answers
from penstock.router.batches.answers import answer_line, answer_patiently, no_answer
from penstock.router.batches.lines import Line
from penstock.router.errors import Overloaded, Unhealthy, ValidationError
from penstock.router.generation.around import Around
from penstock.router.generation.service import Service
from penstock.router.generation.services import SERVICES, NotLoaded, Services
from penstock.router.grants import Grants
from tests.eventually import until
from tests.fakes import LIMITS
from tests.pooling_fleet import EMBEDDER, PoolingFleet
from tests.router.api.conftest import Server, Start
from tests.router.api.openai.chats import HELLO

BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HELLO, "seed": 5, "temperature": 1.0, "n": 2, "max_tokens": 4},
    "/v1/completions": {"prompt": ["One", "Two"], "seed": 5, "temperature": 1.0, "logprobs": 2, "max_tokens": 4},
    "/v1/responses": {"input": "Hello", "seed": 5, "temperature": 1.0, "top_logprobs": 2, "max_output_tokens": 4},
    EMBEDDINGS: {"input": ["One", "Two"], "encoding_format": "base64"},
}


def services_of(server: Server) -> Services:
    app = server.client.app
    assert app is not None
    return app[SERVICES]


def without_time(content: dict[str, Any]) -> dict[str, Any]:
    return {**content, **dict.fromkeys(content.keys() & {"created", "created_at", "completed_at"}, 0)}


@contextmanager
def no_permits(server: Server) -> Iterator[None]:
    """Has the block run while clients have all permits."""
    server.groups.take_permits(LIMITS.max_concurrent_requests)
    yield
    server.groups.return_permits(LIMITS.max_concurrent_requests)


@pytest.fixture
async def chatty(start: Start, demo: Any) -> Server:
    return await start(template=demo)


@pytest.mark.parametrize("url", ROUTES)
async def test_the_answer_of_a_line_is_that_of_http(start: Start, demo: Any, url: str) -> None:
    makes_vectors: dict[str, Any] = {"facts": EMBEDDER, "make_fleet": lambda _: PoolingFleet()}
    chatty = await start(template=demo, **makes_vectors if url == EMBEDDINGS else {})
    response = await chatty.post(url, BODIES[url])
    assert response.status == 200, await response.text()
    with no_permits(chatty):  # which those of a batch don't need
        answer = await answer_line(services_of(chatty), Line(1, "a", url, BODIES[url]))
    assert answer.status == 200
    assert without_time(answer.body) == without_time(await response.json())
    line = orjson.loads(answer.to_json())
    assert line.pop("id").startswith("batch_req_")
    assert line == {"custom_id": "a", "error": None, "response": {
        "status_code": 200, "request_id": answer.request_id, "body": answer.body}}
    assert chatty.series()["tgi_request_success"] == 2
    await chatty.until_idle()


@pytest.mark.parametrize("wish", [{"service_tier": "priority"}, {"service_tier": "flex"}, {"priority": -5}])
async def test_a_line_is_of_no_tier(start: Start, wish: dict[str, Any]) -> None:
    server = await start(limits=replace(LIMITS, allow_priorities=True))
    answer = await answer_line(services_of(server), Line(1, "a", "/v1/completions", {"prompt": "One", **wish}))
    assert answer.status == 200
    assert "service_tier" not in answer.body


@pytest.mark.parametrize(("url", "body"), [
    ("/v1/completions", {}), ("/v1/completions", {"prompt": "One", "max_tokens": "x"}),
    ("/v1/completions", {"prompt": "One", "temperature": -1.0}), ("/v1/chat/completions", {"messages": []}),
    ("/v1/chat/completions", {"messages": HELLO, "n": 0}),
])
async def test_the_error_of_a_line_is_that_of_http(chatty: Server, url: str, body: dict[str, Any]) -> None:
    response = await chatty.post(url, body)
    answer = await answer_line(services_of(chatty), Line(1, "a", url, body))
    assert (answer.status, answer.body) == (response.status, await response.json())
    assert answer.status == 400
    assert answer.has_failed


async def test_a_line_is_a_request_of_the_tenant_who_has_sent_it(start: Start) -> None:
    server = await start(make_around=lambda metrics: Around(grants_of={"alice": Grants(share=2)}.__getitem__))
    line = Line(1, "a", "/v1/completions", {"prompt": "One", "max_tokens": 4}, "alice")
    assert (await answer_line(services_of(server), line)).status == 200
    [(lane, service)] = server.engine._scheduler._waiting.shares._lanes.items()
    assert (lane, service.served > 4) == ((True, "alice"), True)


async def test_errors_are_told_in_the_servers_manner(start: Start) -> None:
    server = await start(limits=replace(LIMITS, tgi_openai_routes=True))
    body = {"prompt": "One", "temperature": -1.0}
    response = await server.post("/v1/completions", body)
    answer = await answer_line(services_of(server), Line(1, "a", "/v1/completions", body))
    assert (answer.status, answer.body) == (response.status, await response.json())
    assert answer.status == 422


async def test_a_fault_of_the_server_is_an_answer(chatty: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.router.api.openai.completions.parse", None)
    answer = await answer_line(services_of(chatty), Line(1, "a", "/v1/completions", {"prompt": "One"}))
    assert (answer.status, answer.body["error"]["code"]) == (500, "internal_error")


async def test_a_line_for_a_group_that_is_gone_is_to_be_asked_again(chatty: Server) -> None:
    chatty.fleet.may_answer.clear()
    chatty.fleet.may_open.clear()
    chatty.engine.give_up()
    with pytest.raises(Unhealthy):
        await answer_line(services_of(chatty), Line(1, "a", "/v1/completions", {"prompt": "One"}))
    chatty.fleet.may_open.set()


async def test_a_whole_answer_may_need_permits_and_is_not_streamed(chatty: Server) -> None:
    with no_permits(chatty), pytest.raises(Overloaded):
        await whole_answer(services_of(chatty), "/v1/completions", {"prompt": "One"})
    with pytest.raises(ValidationError, match="`stream` must be false"):
        await whole_answer(services_of(chatty), "/v1/completions", {"prompt": "One", "stream": True})


async def test_a_line_that_is_asked_again_has_the_same_seed(chatty: Server) -> None:
    body = {"prompt": "One", "temperature": 1.0, "max_tokens": 2}

    async def named(custom_id: str) -> str:
        return (await answer_line(services_of(chatty), Line(1, custom_id, "/v1/completions", body))).body["id"]

    assert await named("a") == await named("a") != await named("b")


async def test_a_line_comes_after_all_other_requests(chatty: Server) -> None:
    chatty.fleet.may_answer.clear()
    scheduler, body = chatty.engine._scheduler, {"prompt": "One", "max_tokens": 2}
    line = asyncio.create_task(answer_line(services_of(chatty), Line(1, "a", "/v1/completions", body)))
    other = asyncio.create_task(chatty.post("/v1/completions", body))
    await until(lambda: len(scheduler._sequences) == 2)
    assert sorted(each.is_background for each in scheduler._sequences.values()) == [False, True]
    chatty.fleet.may_answer.set()
    assert ((await line).status, (await other).status) == (200, 200)


def test_a_line_without_an_answer() -> None:
    line = orjson.loads(no_answer("a", "batch_expired", "It was not answered in time."))
    assert line.pop("id").startswith("batch_req_")
    assert line == {"custom_id": "a", "response": None,
                    "error": {"code": "batch_expired", "message": "It was not answered in time."}}


async def test_a_model_that_could_not_be_loaded_is_asked_again_when_it_may_be_tried(
    chatty: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    errors = [Unhealthy(), NotLoaded("it has no weights")]

    @asynccontextmanager
    async def using(name: str | None) -> AsyncIterator[Service]:
        if errors:
            raise errors.pop()
        yield services.first

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    services = services_of(chatty)
    monkeypatch.setattr(services, "using", using)
    monkeypatch.setattr(answers, "asyncio", SimpleNamespace(sleep=sleep))
    answer = await answer_patiently(services, Line(1, "x", "/v1/completions", BODIES["/v1/completions"]))
    assert (answer.status, pauses) == (200, [30, 1.0])
    errors += [NotLoaded("it has no weights")] * 3 + [Unhealthy()]
    answer = await answer_patiently(services, Line(1, "x", "/v1/completions", BODIES["/v1/completions"]))
    assert (answer.status, pauses, len(errors)) == (503, [30, 1.0, 1.0, 30, 30], 0)
    assert "it has no weights" in str(answer.body)


async def test_a_line_may_ask_for_a_receipt(chatty: Server) -> None:
    body = {**BODIES["/v1/chat/completions"], "receipt": True}
    answer = await answer_line(services_of(chatty), Line(1, "a", "/v1/chat/completions", body))
    receipt = answer.body["receipt"]
    assert (answer.status, receipt["id"]) == (200, answer.request_id)
    assert receipt["request"]["path"] == "/v1/chat/completions"
    assert orjson.loads(receipt["request"]["body"]) == BODIES["/v1/chat/completions"]
    assert receipt["tokens"]["output"] == answer.body["usage"]["completion_tokens"]
    wrong = await answer_line(services_of(chatty), Line(1, "a", "/v1/chat/completions", {**body, "receipt": 1}))
    assert (wrong.status, wrong.has_failed) == (400, True)
