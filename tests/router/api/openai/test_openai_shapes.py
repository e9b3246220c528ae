"""Answers are what OpenAI's own types say, strictly, and have no field that those do not have."""

import json
from typing import Any

import pytest
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel

from penstock.router.adapters.registry import Registry
from penstock.router.adapters.source import AdapterSource
from penstock.router.chat.template import ChatTemplate
from tests.router.adapters.folders import write_adapter
from tests.router.api.conftest import Server, Start
from tests.router.api.openai import test_completions as completions
from tests.router.api.openai.chats import HELLO, WEATHER, chat, chunks
from tests.router.api.sdk import openai_client

CALLS = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call><|im_end|>'
CHATS: list[dict[str, Any]] = [
    {}, {"model": "any"}, {"n": 3, "logprobs": True, "top_logprobs": 2}, {"stop": "is"}, {"max_tokens": 2},
    {"tools": [WEATHER]}, {"tools": [WEATHER], "model": "any", "max_tokens": 12, "logprobs": True, "n": 2},
]
USAGE = {"stream_options": {"include_usage": True}}


def extras(value: object, path: str = "") -> list[str]:
    """The fields, however deep, that the types do not have."""
    if isinstance(value, list):
        return [name for each in value for name in extras(each, path)]
    if not isinstance(value, BaseModel):
        return []
    found = [f"{path}.{name}" for name in value.model_extra or ()]
    return found + [name for field in type(value).model_fields for name in extras(getattr(value, field),
                                                                                  f"{path}.{field}")]


def check(kind: type[BaseModel], content: object) -> Any:
    """Parse an answer, from its JSON and strictly."""
    parsed = kind.model_validate_json(json.dumps(content), strict=True)
    assert extras(parsed) == []
    return parsed


@pytest.fixture(params=["Hello wörld, 😀 is all.<|im_end|>", CALLS], ids=["text", "calls"])
async def server(start: Start, hermes: ChatTemplate, request: pytest.FixtureRequest) -> Server:
    return await start(answer=request.param, template=hermes)


@pytest.mark.parametrize("fields", CHATS, ids=str)
async def test_chats(server: Server, fields: dict[str, Any]) -> None:
    whole = check(ChatCompletion, await chat(server, **fields))
    assert whole.id.startswith("chatcmpl-")
    assert len(whole.choices) == fields.get("n", 1)
    for options in ({}, USAGE):
        streamed = [check(ChatCompletionChunk, chunk) for chunk in await chunks(server, **fields, **options)]
        assert len({chunk.id for chunk in streamed}) == 1
        reasons = [choice.finish_reason for chunk in streamed for choice in chunk.choices if choice.finish_reason]
        assert reasons == [choice.finish_reason for choice in whole.choices]
        assert [bool(chunk.usage) for chunk in streamed] == [False] * (len(streamed) - 1) + [bool(options)]


@pytest.mark.parametrize("fields", [
    {}, {"n": 2, "logprobs": 2, "prompt": ["a", "b"]}, {"stop": "is"}, {"max_tokens": 1}, {"prompt": [5, 6]},
    {"echo": True, "logprobs": 1}], ids=str)
async def test_completions(server: Server, fields: dict[str, Any]) -> None:
    answer = await completions.complete(server, **fields)
    chunks = await completions.chunks(server, **fields, **USAGE)
    for each in [answer, *chunks]:
        for choice in each["choices"]:
            _without_nulls(choice)
    whole = check(Completion, answer)
    assert whole.id.startswith("cmpl-")
    streamed = [check(Completion, chunk) for chunk in chunks]
    assert len({chunk.id for chunk in streamed}) == 1
    assert streamed[-1].usage == whole.usage


def _without_nulls(choice: dict[str, Any]) -> None:
    """Fills in what OpenAI sends as null although its types do not say so: the reason of a chunk that is not the last,
    and the logprob of a prompt's first token."""
    if choice["finish_reason"] is None:
        choice["finish_reason"] = "stop"
    if choice["logprobs"]:
        for name, nothing in (("token_logprobs", 0.0), ("top_logprobs", {})):
            values = choice["logprobs"][name]
            choice["logprobs"][name] = values and [nothing if value is None else value for value in values]


async def test_models(start: Start, tmp_path: Any) -> None:
    registry = Registry([AdapterSource("mine/own", write_adapter(tmp_path), str(tmp_path))], max_bytes=2**20)
    server = await start(adapters=registry)
    for path in ("/v1/models", "/v1/models/"):
        answer = await (await server.client.get(path)).json()
        assert (answer["object"], [each["id"] for each in answer["data"]]) == ("list", ["demo", "mine/own"])
    plain, adapter = answer["data"]
    assert check(Model, plain).id == "demo"
    assert (adapter.pop("root"), adapter.pop("parent")) == (str(tmp_path), "demo")  # vLLM's
    check(Model, adapter)
    async with openai_client(server) as client:
        for name in ("demo", "mine/own"):
            assert (await client.models.retrieve(name)).id == name
    for path in ("/v1/models/mine/own", "/v1/models/mine%2Fown", "/v1/models/mine/own/"):
        assert (await (await server.client.get(path)).json())["id"] == "mine/own"


async def test_an_id_names_an_answer(server: Server) -> None:
    """Equal requests with a seed have equal answers, and one id; without one each has its own."""
    same = [(await chat(server, seed=5))["id"] for _ in range(2)]
    assert same[0] == same[1] == (await chunks(server, seed=5))[0]["id"]
    assert len({(await chat(server))["id"] for _ in range(3)} | {same[0]}) == 4
    assert (await chat(server, seed=6))["id"] != same[0]


async def test_a_stream_that_goes_on_keeps_its_id(start: Start, hermes: ChatTemplate) -> None:
    server = await start(template=hermes)
    ids = {"accept": "text/event-stream"}
    for path, body in (("/v1/chat/completions", {"messages": HELLO}), ("/v1/completions", {"prompt": "a"})):
        body = {**body, "stream": True, "max_tokens": 6}
        first = (await (await server.client.post(path, json=body, headers=ids)).text()).split("\n\n")
        place = first[2].splitlines()[1].removeprefix("id: ")
        rest = await server.client.post(path, json=body, headers={**ids, "Last-Event-ID": place})
        began, went_on = ({json.loads(frame[6:].partition("\n")[0])["id"] for frame in frames
                           if frame.startswith("data: {")} for frames in (first, (await rest.text()).split("\n\n")))
        assert len(began) == 1
        assert went_on == began


@pytest.mark.parametrize(("method", "path", "body"), [
    ("POST", "/v1/chat/completions/", {"messages": HELLO}), ("POST", "/v1/completions/", {"prompt": "a"}),
    ("POST", "/generate/", {"inputs": "a"}), ("POST", "/tokenize/", {"inputs": "a"}), ("GET", "/info/", None),
    ("GET", "/health/", None), ("GET", "/metrics/", None), ("POST", "/invocations/", {"inputs": "a"})])
async def test_a_slash_behind_a_path_changes_nothing(server: Server, method: str, path: str, body: object) -> None:
    response = await server.client.request(method, path, json=body)
    assert response.status == 200
    assert server.series()[f'penstock_requests{{route="{path[:-1]}",status="200"}}'] == 1
