"""With `--tgi-openai-routes` OpenAI's routes answer as TGI's: errors, statuses, ids, finish reasons, to the byte."""

import json
from dataclasses import replace

import pytest

from penstock.router.api.http.access import Access
from penstock.router.chat.template import ChatTemplate
from penstock.router.keys import Keys
from tests.fakes import LIMITS
from tests.router.api.conftest import Server, Start
from tests.router.api.openai import test_completions as completions
from tests.router.api.openai.chats import HELLO, WEATHER, chat, chunks, joined

TGI = replace(LIMITS, tgi_openai_routes=True)
CALLS = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call><|im_end|>'
SHAPE = "Failed to deserialize the JSON body into the target type: "
ROUTES = {"/v1/chat/completions": {"messages": HELLO}, "/v1/completions": {"prompt": "a"}}


@pytest.fixture
async def server(start: Start, hermes: ChatTemplate) -> Server:
    return await start(TGI, template=hermes)


async def test_the_bytes_of_a_chat(start: Start, hermes: ChatTemplate) -> None:
    server = await start(TGI, answer="a<|im_end|>", template=hermes)
    answer = await chat(server, logprobs=True)
    assert answer["id"] == ""
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "a"}
    assert answer["choices"][0]["logprobs"].keys() == {"content"}
    response = await server.post("/v1/chat/completions", {"messages": HELLO, "stream": True, "model": "other"})
    text = await response.text()
    created = json.loads(text.partition("\n")[0][6:])["created"]
    head = (f'{{"object":"chat.completion.chunk","id":"","created":{created},"model":"other",'
            '"system_fingerprint":"0.1.0-native","choices":[{"index":0,"delta":{"role":"assistant","content":')
    assert text == (
        f'data: {head}"a"}},"logprobs":null,"finish_reason":null}}],"usage":null}}\n\n'
        f'data: {head}""}},"logprobs":null,"finish_reason":"stop"}}],"usage":null}}\n\ndata: [DONE]\n\n')


async def test_the_bytes_of_a_completion(start: Start) -> None:
    server = await start(TGI, answer="a<|im_end|>")
    assert (await completions.complete(server))["id"] == ""
    first, last = await completions.chunks(server)
    assert [each["id"] for each in (first, last)] == ["", ""]
    assert first["choices"] == [{"index": 0, "text": "a", "logprobs": None, "finish_reason": ""}]
    assert last["choices"] == [{"index": 0, "text": "", "logprobs": None, "finish_reason": "eos_token"}]


@pytest.mark.parametrize(("fields", "whole", "streamed"), [
    ({}, "stop", "eos_token"), ({"stop": "is"}, "stop_sequence", "stop_sequence"),
    ({"max_tokens": 3}, "length", "length")])
async def test_finish_reasons(server: Server, fields: dict[str, object], whole: str, streamed: str) -> None:
    assert (await chat(server, **fields))["choices"][0]["finish_reason"] == whole
    assert joined(await chunks(server, **fields))[2] == [whole]
    assert (await completions.complete(server, **fields))["choices"][0]["finish_reason"] == whole
    assert (await completions.chunks(server, **fields))[-1]["choices"][0]["finish_reason"] == streamed


async def test_calls_end_as_any_answer(start: Start, hermes: ChatTemplate) -> None:
    server = await start(TGI, CALLS, template=hermes)
    assert (await chat(server, tools=[WEATHER]))["choices"][0]["finish_reason"] == "stop"
    streamed = await chunks(server, tools=[WEATHER])
    assert joined(streamed)[2] == ["stop"]
    assert {frozenset(chunk["choices"][0]["delta"]) for chunk in streamed} <= {
        frozenset({"role", "content"}), frozenset({"role", "tool_calls"})}


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(("fields", "rule"), [
    ({"temperature": -1}, "`temperature` must be strictly positive"),
    ({"max_tokens": 0}, "`max_new_tokens` must be strictly positive"),
    ({"stop": ["a"] * 5}, "`stop` supports up to 4 stop sequences. Given: 5")])
async def test_a_rule(server: Server, path: str, fields: dict[str, object], rule: str) -> None:
    message = f"Input validation error: {rule}"
    response = await server.post(path, {**ROUTES[path], **fields})
    assert (response.status, await response.json()) == (422, {"error": message, "error_type": "validation"})
    response = await server.post(path, {**ROUTES[path], "stream": True, **fields})
    assert (response.status, await response.text()) == (
        200, f'data: {{"error":{{"message":"{message}","http_status_code":422}}}}\n\ndata: [DONE]\n\n')


async def test_the_words_for_what_is_too_long(server: Server) -> None:
    response = await server.post("/v1/completions", {"prompt": "a", "max_tokens": 1024})
    assert (await response.json())["error"].endswith(
        "`inputs` tokens + `max_new_tokens` must be <= 1024. Given: 1 `inputs` tokens and 1024 `max_new_tokens`")
    response = await server.post("/v1/chat/completions", {"messages": HELLO, "logprobs": True, "top_logprobs": 6})
    assert "`top_n_tokens` must be >= 0 and <= 5. Given: 6" in await response.text()


@pytest.mark.parametrize(("path", "fields", "message", "kind"), [
    ("/v1/completions", {"suffix": "b"}, "Suffix is not supported and can be achieved by preprocessing the prompt.",
     "suffix not supported"),
    ("/v1/completions", {"prompt": ["a"] * 5}, "Number of prompts exceeds the maximum allowed batch size of 4",
     "batch size exceeded"),
    ("/v1/chat/completions", {"tool_choice": "other"}, "Tool error: Tool with name other not found", "tool_error"),
    ("/v1/chat/completions", {"chat_template": "none"}, "Template error: template not found: there is none called "
                                                        "'none', but ['default']", "template_error"),
])
async def test_what_has_a_status_for_streams_too(
    server: Server, path: str, fields: dict[str, object], message: str, kind: str
) -> None:
    for is_stream in (False, True):
        response = await server.post(path, {**ROUTES[path], "stream": is_stream, **fields})
        assert (response.status, await response.json()) == (422, {"error": message, "error_type": kind})


async def test_bodies_that_cannot_be_read(server: Server) -> None:
    for path, missing in (("/v1/chat/completions", "messages"), ("/v1/completions", "prompt")):
        response = await server.post(path, {})
        assert (response.status, await response.text()) == (422, f"{SHAPE}missing field `{missing}`")
        assert response.headers["content-type"] == "text/plain; charset=utf-8"
        response = await server.client.post(path, data=b"{", headers={"content-type": "application/json"})
        assert (response.status, response.content_type) == (400, "text/plain")
        response = await server.client.post(path, data=b"{}", headers={"content-type": "text/plain"})
        assert (response.status, await response.text()) == (
            415, "Expected request with `Content-Type: application/json`")
        response = await server.client.get(path)
        assert (response.status, await response.text(), response.headers["allow"]) == (405, "", "POST")
    response = await server.client.get("/v1/nothing")
    assert (response.status, await response.text()) == (404, "")


async def test_a_wrong_key(start: Start) -> None:
    server = await start(TGI, access=Access(Keys(["secret"])))
    response = await server.post("/v1/completions", {"prompt": "a"})
    assert (response.status, await response.text()) == (401, "")


async def test_too_many(start: Start, hermes: ChatTemplate) -> None:
    server = await start(replace(TGI, max_concurrent_requests=1), template=hermes)
    async with server.groups.permit():
        for path, body in ROUTES.items():
            response = await server.post(path, body)
            assert (response.status, await response.json()) == (
                429, {"error": "Model is overloaded", "error_type": "overloaded"})
            response = await server.post(path, {**body, "stream": True})
            assert (response.status, await response.text()) == (
                200, 'data: {"error":{"message":"Model is overloaded","http_status_code":422}}\n\ndata: [DONE]\n\n')


async def test_a_failure_in_the_middle_of_a_stream(server: Server) -> None:
    server.fleet.may_answer.clear()
    response = await server.post("/v1/completions", {"prompt": "a", "stream": True})
    server.fleet.failure = ZeroDivisionError("a fault")
    server.fleet.may_answer.set()
    assert await response.text() == (
        'data: {"error":{"message":"Request failed during generation: Server error: a fault",'
        '"http_status_code":422}}\n\ndata: [DONE]\n\n')


@pytest.mark.parametrize("body", [{"messages": HELLO, "temperature": -1}, {"prompt": ""}])
async def test_invocations(start: Start, hermes: ChatTemplate, body: dict[str, object]) -> None:
    """Follow the route whose body they carry; TGI's own body is always answered in TGI's shape."""
    as_tgi, as_openai = await start(TGI, template=hermes), await start(template=hermes)
    response = await as_tgi.post("/invocations", body)
    assert (response.status, (await response.json())["error_type"]) == (422, "validation")
    response = await as_openai.post("/invocations", body)
    assert (response.status, (await response.json())["error"]["type"]) == (400, "invalid_request_error")
    for server in (as_tgi, as_openai):
        for other in ({"inputs": ""}, {"inputs": "a", "parameters": {"temperature": -1}}):
            response = await server.post("/invocations", other)
            assert (response.status, (await response.json())["error_type"]) == (422, "validation")
