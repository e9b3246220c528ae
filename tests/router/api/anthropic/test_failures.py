"""Failures in Anthropic's shape, as its client tells them apart."""

from dataclasses import replace
from typing import Any

import anthropic
import pytest

from penstock.router.api.http.access import Access
from penstock.router.errors import GenerationError
from penstock.router.keys import Keys
from tests.eventually import until
from tests.fakes import LIMITS
from tests.router.api.anthropic.talks import HELLO, anthropic_client, refusal
from tests.router.api.conftest import Server, Start

ASKED: Any = {"model": "tgi", "max_tokens": 100, "messages": HELLO}


@pytest.fixture
async def server(start: Start, hermes: Any) -> Server:
    return await start(template=hermes)


async def failure(server: Server, key: str = "unused", **fields: Any) -> anthropic.APIStatusError:
    async with anthropic_client(server, key) as client:
        with pytest.raises(anthropic.APIStatusError) as caught:
            await client.messages.create(**{**ASKED, **fields})
    error = caught.value
    assert error.request_id is not None
    return error


async def test_a_wrong_request(server: Server) -> None:
    error = await failure(server, messages=[])
    assert type(error) is anthropic.BadRequestError
    assert (error.type, error.api_message) == (
        "invalid_request_error", "messages: invalid value: a list: List should have at least 1 item after validation, "
                                 "not 0")


@pytest.mark.parametrize("key", ["", "wrong"])
async def test_a_wrong_key(start: Start, hermes: Any, key: str) -> None:
    server = await start(template=hermes, access=Access(Keys(["secret"])))
    error = await failure(server, key or "none")
    assert (type(error), error.type) == (anthropic.AuthenticationError, "authentication_error")


@pytest.mark.parametrize("header", [
    {"x-api-key": "secret"}, {"authorization": "Bearer secret"},
    {"x-api-key": "other", "authorization": "Bearer secret"},
    {"x-api-key": " secret ", "authorization": "Bearer other"}])
async def test_a_right_key(start: Start, hermes: Any, header: dict[str, str]) -> None:
    server = await start(template=hermes, access=Access(Keys(["secret"])))
    response = await server.client.post("/v1/messages", json=ASKED, headers=header)
    assert response.status == 200


async def test_a_body_that_is_too_large(start: Start, hermes: Any) -> None:
    server = await start(replace(LIMITS, payload_limit=1000), template=hermes)
    error = await failure(server, system="a" * 2000)
    assert (type(error), error.type) == (anthropic.ContentTooLargeError, "request_too_large")


async def test_no_permit(start: Start, hermes: Any) -> None:
    server = await start(replace(LIMITS, max_concurrent_requests=1), template=hermes)
    async with server.groups.permit():
        error = await failure(server)
    assert (type(error), error.type) == (anthropic.RateLimitError, "rate_limit_error")
    assert error.response.headers["retry-after"] == "1"


async def test_no_group(server: Server) -> None:
    await until(lambda: server.engine.has_group)
    server.engine.is_healthy = False
    error = await failure(server)
    assert (type(error), error.type) == (anthropic.OverloadedError, "overloaded_error")


async def test_no_template(start: Start) -> None:
    error = await failure(await start())
    assert (error.status_code, error.type, error.api_message) == (
        400, "invalid_request_error", "messages: Template error: template not found")


async def test_no_route(server: Server) -> None:
    for method, path, status in (("GET", "/v1/messages", 405), ("POST", "/v1/messages/batches", 404)):
        response = await server.client.request(method, path)
        assert response.status == status
        assert (await response.json())["error"]["type"] == ("not_found_error" if status == 404 else
                                                            "invalid_request_error")


async def test_a_prompt_that_is_too_long(server: Server) -> None:
    """In the words by which Claude Code knows that it must shorten the conversation."""
    status, kind, sentence = await refusal(server, messages=[{"role": "user", "content": "word " * 2000}])
    assert (status, kind) == (400, "invalid_request_error")
    assert sentence == "prompt is too long: 2009 tokens > 1023 maximum"


async def test_a_stream_that_fails(server: Server) -> None:
    async with anthropic_client(server) as client:
        server.fleet.may_answer.clear()
        events = await client.messages.create(**ASKED, stream=True)
        server.engine.fail_all(GenerationError("the group is gone"))
        with pytest.raises(anthropic.APIStatusError) as caught:
            [event async for event in events]
    assert (caught.value.type, caught.value.api_message) == (
        "api_error", "Request failed during generation: the group is gone")
