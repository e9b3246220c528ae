"""A model of another server takes the place of one here that fails before its answer begins."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from penstock.router import logs
from penstock.router.api.foreign.falling_back import has_begun
from penstock.router.foreign_settings import Fallback
from penstock.router.generation.identity import REPEAT
from penstock.router.generation.request_record import RequestRecord
from tests.eventually import until
from tests.fakes import LIMITS
from tests.router.api.conftest import Server
from tests.router.api.foreign.conftest import Front, Stranger, url_of

PROMPT: dict[str, Any] = {"prompt": "Who?", "max_tokens": 9}
ALL = LIMITS.max_concurrent_requests


@pytest.fixture
async def server(front: Front, stranger: Stranger, other: Server) -> Server:
    """Its model `demo` is followed by `bad`, which fails, and by `far`, which answers."""
    return await front(fallback=Fallback(("bad", "far")), bad={"url": stranger.url},
                       far={"url": url_of(other), "model": "demo"})


async def ask(server: Server, path: str = "/v1/completions", status: int = 200, **body: object) -> tuple[str, str, str]:
    """Returns the answer, the server that has made it, if it is elsewhere, and the model, if it is here."""
    async with server.client.post(path, json={**PROMPT, **body}) as response:
        text = await response.text()
        assert response.status == status, text
        return text, response.headers.get("penstock-source", ""), response.headers.get("penstock-model", "")


async def test_a_model_that_answers_needs_no_other(server: Server, stranger: Stranger) -> None:
    for stream in (False, True):
        assert (await ask(server, stream=stream))[1:] == ("", "demo")
    assert stranger.bodies == []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("body", [{}, {"model": "demo"}])
async def test_one_that_is_overloaded_does(
    server: Server, other: Server, stranger: Stranger, caplog: pytest.LogCaptureFixture, stream: bool, body: Any
) -> None:
    caplog.set_level(logging.INFO, logs.REQUESTS)
    async with server.groups.permit(ALL):
        assert (await ask(server, stream=stream, **body))[1:] == (url_of(other), "")
        chat: Any = {"messages": [{"role": "user", "content": "Who?"}], "prompt": None}
        assert (await ask(server, "/v1/chat/completions", stream=stream, **chat, **body))[1:] == (url_of(other), "")
    assert len(stranger.bodies) == 2
    [fields, _] = [found for record in caplog.records if record.name == logs.REQUESTS
                   and "source" in (found := record.__dict__["fields"])]
    assert (fields["model"], fields["status"], fields["failed_sources"], fields.get("error")) == (
        "far", 200, f"here overloaded, {stranger.url} failed", None)
    await server.until_idle()


@pytest.mark.parametrize("stream", [False, True])
async def test_one_whose_answer_does_not_begin_does(front: Front, other: Server, stream: bool) -> None:
    server = await front(fallback=Fallback(("far",), 0.01), far={"url": url_of(other), "model": "demo"})
    server.fleet.may_answer.clear()
    assert (await ask(server, stream=stream))[1:] == (url_of(other), "")
    server.fleet.may_answer.set()
    await server.until_idle()
    assert server.series()['tgi_request_failure{err="dropped"}'] == 1


async def test_a_route_that_no_other_has_waits_for_the_one_here(front: Front, stranger: Stranger) -> None:
    server = await front(fallback=Fallback(("far",), 1e-9), far={"url": stranger.url})
    server.fleet.may_answer.clear()
    asking = asyncio.create_task(server.generate())
    await server.fleet.has_plan.wait()
    server.fleet.may_answer.set()
    assert (await asking)["generated_text"] == "I am here."


@pytest.mark.parametrize(("first", "finished", "begins"), [(None, None, False), (1.0, None, True), (None, 1.0, True)])
def test_an_answer_begins_with_its_first_token_or_with_all_of_it(
    first: float | None, finished: float | None, begins: bool
) -> None:
    record = RequestRecord("")
    streams: Any = [SimpleNamespace(first_token_at=None, finished_at=None),
                    SimpleNamespace(first_token_at=first, finished_at=finished)]
    record.begin([], is_stream=False).submitted(streams)
    assert has_begun(record) is begins


async def test_one_that_is_away_does(server: Server, other: Server) -> None:
    server.groups.give_up()
    assert (await ask(server))[1:] == (url_of(other), "")


async def test_a_request_that_is_wrong_goes_nowhere_else(server: Server, stranger: Stranger) -> None:
    await ask(server, status=400, max_tokens=-1)
    server.groups.give_up()
    async with server.client.post("/v1/completions", json=PROMPT, headers={REPEAT: "x"}) as response:
        assert response.status == 400
    assert stranger.bodies == []


async def test_where_none_answers_the_client_hears_of_the_first_failure(front: Front, stranger: Stranger) -> None:
    server = await front(fallback=Fallback(("far",)), far={"url": stranger.url})
    async with server.groups.permit(ALL):
        text, source, _ = await ask(server, status=429)
        assert ("overloaded" in text, source) == (True, "")
        async with server.client.post("/models/demo/generate", json={"inputs": "Who?"}) as response:
            assert response.status == 429  # by a route that the other does not have
    async with server.client.get("/metrics") as response:
        assert 'penstock_requests_total{model="demo",route="/v1/completions",status="429"} 1.0' in await response.text()


async def test_a_client_that_leaves_ends_it(front: Front, stranger: Stranger) -> None:
    async def wait(request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    stranger.handler = wait
    server = await front(fallback=Fallback(("far",)), far={"url": stranger.url})
    async with server.groups.permit(ALL):
        asking = asyncio.create_task(ask(server))
        await until(lambda: stranger.bodies)
        asking.cancel()
        await until(lambda: stranger.num_left)
