"""What OpenAI's own client says of each kind of refusal: the reason, the code, the field, and the request's id."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import openai
import pytest

from penstock.router.api.http.access import Access
from penstock.router.chat.template import ChatTemplate
from penstock.router.keys import Keys
from tests.fakes import LIMITS
from tests.router.api.conftest import Server, Start, of_one_server
from tests.router.api.openai.chats import HELLO, TIME, WEATHER
from tests.router.api.sdk import openai_client

Ask = Callable[[openai.AsyncOpenAI], Awaitable[Any]]


async def refused(server: Server, ask: Ask, key: str = "unused") -> openai.APIStatusError:
    """The error that the client raises, which knows of which request it tells."""
    async with openai_client(server, key) as client:
        with pytest.raises(openai.APIStatusError) as caught:
            await ask(client)
    error = caught.value
    assert error.request_id is not None
    assert error.request_id.startswith("req_")
    assert isinstance(error.body, dict)
    assert error.body.keys() == {"message", "type", "param", "code"}
    assert str(error.body["message"]) in str(error)
    return error


@pytest.fixture
async def server(start: Start, hermes: ChatTemplate) -> Server:
    return await start(template=hermes)


@pytest.fixture(scope="module")
def lasting_settings(hermes: ChatTemplate) -> dict[str, Any]:
    return {"template": hermes}


CHATS: list[tuple[dict[str, Any], str, str, str | None]] = [
    ({"max_tokens": 2000}, "maximum context length is 1024 tokens", "context_length_exceeded", "messages"),
    ({"messages": [{"role": "user", "content": " a" * 1100}]}, "maximum context length is 1024 tokens",
     "context_length_exceeded", "messages"),
    ({"stop": ["a"] * 5}, "`stop` supports up to 4 stop sequences. Given: 5", "array_above_max_length", "stop"),
    ({"n": 0}, "`n` must be > 0", "integer_below_min_value", "n"),
    ({"n": 200}, "`n` must be <= 128. Given: 200", "integer_above_max_value", "n"),
    ({"top_p": 1.5}, "`top_p` must be >= 0.0 and <= 1.0. Given: 1.5", "decimal_above_max_value", "top_p"),
    ({"temperature": -1}, "`temperature` must be", "decimal_below_min_value", "temperature"),
    ({"temperature": "hot"}, 'temperature: invalid type: string "hot", expected a number', "invalid_type",
     "temperature"),
    ({"max_tokens": 0}, "`max_tokens` must be strictly positive", "integer_below_min_value", "max_tokens"),
    ({"max_completion_tokens": 0}, "`max_completion_tokens` must be", "integer_below_min_value",
     "max_completion_tokens"),
    ({"max_tokens": 2, "max_completion_tokens": 0}, "`max_completion_tokens` must be", "integer_below_min_value",
     "max_completion_tokens"),
    ({"max_tokens": 1.5}, "max_tokens: invalid type", "invalid_type", "max_tokens"),
    ({"logprobs": True, "top_logprobs": 20}, "`top_logprobs` must be >= 0 and <= 5", "integer_above_max_value",
     "top_logprobs"),
    ({"top_logprobs": 2}, "`top_logprobs` needs `logprobs`", "invalid_value", "top_logprobs"),
    ({"logit_bias": {"5": 101}}, "`logit_bias` must have values", "decimal_above_max_value", "logit_bias"),
    ({"logit_bias": {"9999": 1}}, "`logit_bias` must have token ids < 8192", "invalid_value", "logit_bias"),
    ({"messages": []}, "messages: invalid value", "empty_array", "messages"),
    ({"messages": openai.omit}, "missing field `messages`", "missing_required_parameter", "messages"),
    ({"messages": [{"content": "a"}]}, "missing field `role`", "missing_required_parameter", "messages[0].role"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]},
     "must be of type \"text\"", "invalid_value", "messages[0].content[0]"),
    ({"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "none"}}},
     "Tool with name none not found", "invalid_value", "tool_choice"),
    ({"tool_choice": "required"}, "there are no `tools`", "invalid_value", "tool_choice"),
    ({"tools": [TIME] * 129}, "at most 128 items", "array_above_max_length", "tools"),
    ({"tools": [{"type": "function", "function": {"name": ""}}]}, "at least 1 character", "empty_string",
     "tools[0].function.name"),
    ({"response_format": {"type": "json_object"}}, "grammar is not supported", "unsupported_parameter",
     "response_format"),
    ({"extra_body": {"num_beams": 2}}, "`num_beams`, other than 1, is not supported", "unsupported_parameter",
     "num_beams"),
    ({"extra_body": {"chat_template": "none of this name"}}, "template not found", "invalid_value", "chat_template"),
    ({"extra_headers": {"Idempotency-Key": "a" * 256}}, "must have 1 to 255 characters", "invalid_value",
     "Idempotency-Key"),
]


@of_one_server
@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(("fields", "reason", "code", "param"), CHATS)
async def test_chats(
    lasting_server: Server, fields: dict[str, Any], reason: str, code: str, param: str | None, is_stream: bool
) -> None:
    body = {"model": "any", "messages": HELLO, "stream": is_stream, **fields}
    body = {name: value for name, value in body.items() if value is not openai.omit}
    extra = {"headers": body.pop("extra_headers", {})}
    body |= body.pop("extra_body", {})
    # The client's own method would refuse a body without messages.
    error = await refused(lasting_server, lambda client: client.post(
        "/chat/completions", body=body, cast_to=object, options=extra))
    assert isinstance(error, openai.BadRequestError)
    assert (error.code, error.param, error.type) == (code, param, "invalid_request_error")
    assert reason in str(error)
    assert "max_new_tokens" not in str(error)
    assert "inputs" not in str(error)


@of_one_server
@pytest.mark.parametrize(("fields", "reason", "code", "param"), [
    ({"prompt": ""}, "`prompt` cannot be empty", "empty_string", "prompt"),
    ({"prompt": []}, "Empty array detected", "empty_array", "prompt"),
    ({"prompt": "a", "max_tokens": 2000}, "maximum context length is 1024", "context_length_exceeded", "prompt"),
    ({"prompt": ["a"] * 5}, "maximum allowed batch size of 4", "array_above_max_length", "prompt"),
    ({"prompt": "a", "suffix": "b"}, "Suffix is not supported", "unsupported_parameter", "suffix"),
    ({"prompt": "a", "logprobs": 6}, "`logprobs` must be", "integer_above_max_value", "logprobs"),
    ({"prompt": "a", "best_of": 3}, "`best_of` must be", "integer_above_max_value", "best_of"),
])
async def test_completions(lasting_server: Server, fields: dict[str, Any], reason: str, code: str, param: str) -> None:
    error = await refused(lasting_server, lambda client: client.completions.create(model="any", **fields))
    assert isinstance(error, openai.BadRequestError)
    assert (error.code, error.param, error.type) == (code, param, "invalid_request_error")
    assert reason in str(error)


def ask(client: openai.AsyncOpenAI) -> Awaitable[Any]:
    return client.chat.completions.create(model="any", messages=HELLO)


async def test_a_wrong_key(start: Start) -> None:
    server = await start(access=Access(Keys(["secret"])))
    error = await refused(server, ask, key="wrong")
    assert isinstance(error, openai.AuthenticationError)
    assert (error.code, error.type) == ("invalid_api_key", "authentication_error")
    assert "The API key is missing or wrong" in str(error)
    assert error.response.headers["www-authenticate"] == "Bearer"


async def test_a_model_that_is_not_there(server: Server) -> None:
    error = await refused(server, lambda client: client.models.retrieve("none/such"))
    assert isinstance(error, openai.NotFoundError)
    assert (error.code, error.param) == ("model_not_found", "model")
    assert "The model `none/such` does not exist" in str(error)


async def test_a_path_and_a_method_that_are_not_there(server: Server) -> None:
    error = await refused(server, lambda client: client.moderations.create(input="a"))
    assert isinstance(error, openai.NotFoundError)
    assert (error.code, error.type) == ("unknown_url", "invalid_request_error")
    assert "There is no route POST /v1/moderations" in str(error)
    error = await refused(server, lambda client: client.chat.completions.list())
    assert (error.status_code, error.code) == (405, "method_not_supported")
    assert "/v1/chat/completions is for POST. Given: GET" in str(error)
    assert error.response.headers["allow"] == "POST"


async def test_too_many(start: Start, hermes: ChatTemplate) -> None:
    server = await start(replace(LIMITS, max_concurrent_requests=1), template=hermes)
    async with server.groups.permit():
        for is_stream in (False, True):
            error = await refused(server, lambda client, is_stream=is_stream: client.chat.completions.create(
                model="any", messages=HELLO, stream=is_stream))
            assert isinstance(error, openai.RateLimitError)
            assert (error.code, error.type) == ("rate_limit_exceeded", "rate_limit_error")
            assert "Model is overloaded" in str(error)
            assert error.response.headers["retry-after"] == "1"


async def test_no_group(server: Server) -> None:
    server.engine.give_up()
    error = await refused(server, ask)
    assert isinstance(error, openai.InternalServerError)
    assert (error.status_code, error.code, error.type) == (503, "service_unavailable", "server_error")


async def test_a_failure_while_it_runs(server: Server) -> None:
    server.fleet.failure = ZeroDivisionError("a fault")
    error = await refused(server, ask)
    assert (error.status_code, error.code, error.type) == (424, "generation_failed", "server_error")
    assert "Request failed during generation: Server error: a fault" in str(error)


async def test_a_fault_of_the_server(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.router.api.openai.chat.turn_of", None)
    error = await refused(server, ask)
    assert isinstance(error, openai.InternalServerError)
    assert (error.code, error.type) == ("internal_error", "server_error")
    assert "Internal server error" in str(error)


async def test_an_event_of_a_stream(server: Server) -> None:
    server.fleet.may_answer.clear()
    async with openai_client(server) as client:
        stream = await client.chat.completions.create(
            model="any", messages=HELLO, stream=True, extra_headers={"x-request-id": "mine"})
        server.fleet.failure = ZeroDivisionError("a fault")
        server.fleet.may_answer.set()
        with pytest.raises(openai.APIError) as caught:
            async for _ in stream:
                pass
    error = caught.value
    assert (error.code, error.type, error.param) == ("generation_failed", "server_error", None)
    assert "Request failed during generation: Server error: a fault" in str(error)


@of_one_server
@pytest.mark.parametrize(("content", "headers", "status", "code"), [
    (b"{", {}, 400, "invalid_json"),
    (b"{}", {"content-type": "text/plain"}, 415, "unsupported_content_type"),
    (b"{}", {"content-encoding": "gzip"}, 415, "unsupported_content_type"),
    (b" " * 2_000_001, {}, 413, "request_too_large"),
])
async def test_bodies_that_cannot_be_read(
    lasting_server: Server, content: bytes, headers: dict[str, str], status: int, code: str
) -> None:
    for path in ("/chat/completions", "/completions"):
        error = await refused(lasting_server, lambda client, path=path: client.post(
            path, content=content, cast_to=object,
            options={"headers": {"content-type": "application/json", **headers}}))
        assert (error.status_code, error.code, error.type) == (status, code, "invalid_request_error")


async def test_a_body_that_comes_too_slowly(start: Start) -> None:
    server = await start(replace(LIMITS, body_timeout=0.05))
    async with server.client.post("/v1/completions", data=_never(), headers={"content-type": "application/json"}
                                  ) as response:
        assert (response.status, (await response.json())["error"]["code"]) == (408, "request_timeout")


async def _never() -> AsyncIterator[bytes]:
    yield b"{"
    while True:
        await asyncio.sleep(1)
        yield b" "


@of_one_server
@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/nothing", "/v1/models/", "/v1/chat", "/v1/chat/completions/x"])
async def test_every_path_below_v1_is_openais(lasting_server: Server, path: str) -> None:
    response = await lasting_server.post(path, {})
    error = (await response.json())["error"]
    assert response.status in (404, 405)
    assert error.keys() == {"message", "type", "param", "code"}
    assert (await lasting_server.client.post(path[3:] or "/nothing", data=b"{")).content_type != "application/json"
