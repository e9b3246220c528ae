"""Answers token by token: `POST /generate_stream`, and `POST /` with `stream`."""

import asyncio
import json
from typing import Any

import pytest

from penstock.router.api.http import sse
from tests.eventually import until
from tests.router.api.conftest import Server, Start

TEXT = "Hello wörld, 😀 is all."


async def events(server: Server, path: str = "/generate_stream", **parameters: object) -> list[dict[str, Any]]:
    response = await server.post(path, {"inputs": "Say: ", "stream": True, "parameters": parameters})
    assert response.status == 200
    frames = (await response.text()).split("\n\n")
    assert frames.pop() == ""
    assert all(frame.startswith("data: {") for frame in frames)
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


async def test_the_bytes(start: Start) -> None:
    server = await start(answer="a<|im_end|>")
    response = await server.post("/generate_stream", {"inputs": "ab", "parameters": {"details": True}})
    assert await response.text() == (
        'data: {"index":1,"token":{"id":67,"text":"a","logprob":-0.5,"special":false},'
        '"generated_text":null,"details":null}\n\n'
        'data: {"index":2,"token":{"id":2,"text":"<|im_end|>","logprob":-0.5,"special":true},'
        '"generated_text":"a","details":{"finish_reason":"eos_token","generated_tokens":2,"seed":null,'
        '"prefix_hit_tokens":0,"input_length":1}}\n\n')


async def test_headers(server: Server) -> None:
    response = await server.post("/generate_stream", {"inputs": "Say é"})
    headers = {name.lower(): value for name, value in response.headers.items()}
    for name in ("date", "server", "transfer-encoding", "x-request-id"):
        headers.pop(name)
    assert headers == {
        "content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no",
        "x-compute-type": "2-cpu", "x-compute-characters": "5", "penstock-answer": headers["penstock-answer"]}


async def test_an_event_a_token(server: Server) -> None:
    streamed = await events(server)
    assert [event["index"] for event in streamed] == list(range(1, len(streamed) + 1))
    assert "".join(event["token"]["text"] for event in streamed if not event["token"]["special"]) == TEXT
    assert [event["generated_text"] for event in streamed] == [None] * (len(streamed) - 1) + [TEXT]
    assert all(event["details"] is None for event in streamed)


@pytest.mark.parametrize("parameters", [{}, {"stop": ["rl"]}, {"max_new_tokens": 5}, {"temperature": 0.5, "seed": 3}])
async def test_streamed_and_whole_agree(server: Server, parameters: dict[str, Any]) -> None:
    streamed = await events(server, **parameters, details=True)
    whole = await server.generate("Say: ", **parameters, details=True)
    assert [event["token"] for event in streamed] == whole["details"].pop("tokens")
    assert streamed[-1]["generated_text"] == whole["generated_text"]
    assert whole["details"].pop("prefill") == []
    input_length = len(await server.tokenizer.encode("Say: "))
    assert streamed[-1]["details"] == {**whole["details"], "input_length": input_length}


async def test_the_root_route_adds_the_prompt(server: Server) -> None:
    assert (await events(server, "/"))[-1]["generated_text"] == "Say: " + TEXT
    assert (await events(server, "/", return_full_text=False))[-1]["generated_text"] == TEXT


async def test_comments_keep_the_connection_alive(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "KEEP_ALIVE", 0.02)
    server.fleet.may_answer.clear()
    response = await server.post("/generate_stream", {"inputs": "a", "parameters": {"max_new_tokens": 1}})
    assert await response.content.readexactly(6) == b":\n\n:\n\n"
    server.fleet.may_answer.set()
    rest = (await response.text()).lstrip(":\n")
    assert rest.startswith('data: {"index":1,')
    assert rest.endswith("}\n\n")


async def test_a_failure_of_the_engine_is_the_last_event(server: Server) -> None:
    server.fleet.may_answer.clear()
    response = await server.post("/generate_stream", {"inputs": "a"})
    server.fleet.failure = ZeroDivisionError("a fault")
    server.fleet.may_answer.set()
    assert await response.text() == (
        'data: {"error":"Request failed during generation: Server error: a fault","error_type":"generation"}\n\n')
    assert server.series()['tgi_request_failure{err="generation"}'] == 1


async def test_an_unexpected_failure_is_an_event_and_ends_alone(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("ours")

    with monkeypatch.context() as patch:
        patch.setattr(server.groups, "submit", fail)
        response = await server.post("/generate_stream", {"inputs": "a"})
        assert await response.text() == 'data: {"error":"Internal server error","error_type":"internal"}\n\n'
    assert "KeyError: 'ours'" in caplog.text
    assert (await events(server))[-1]["generated_text"] == TEXT


async def test_a_client_that_leaves_cancels(server: Server) -> None:
    server.fleet.may_answer.clear()
    leaving = await server.post("/generate_stream", {"inputs": "a"})
    await until(lambda: bool(server.engine._requests))
    leaving.close()
    await server.until_idle()
    server.fleet.may_answer.set()
    assert (await events(server))[-1]["generated_text"] == TEXT


async def test_a_client_that_leaves_in_the_middle_cancels(start: Start) -> None:
    server = await start(answer="a b c d")
    response = await server.post("/generate_stream", {"inputs": "a", "parameters": {"max_new_tokens": 1000}})
    await response.content.readany()
    server.fleet.may_answer.clear()
    response.close()
    await server.until_idle()
    series = server.series()
    assert series["tgi_request_success"] == 0
    assert series['tgi_request_failure{err="dropped"}'] == 1
    assert sum(value for name, value in series.items() if name.startswith("tgi_request_failure")) == 1


async def test_a_client_that_leaves_a_whole_answer_cancels(server: Server) -> None:
    server.fleet.may_answer.clear()
    waiting = asyncio.create_task(server.post("/generate", {"inputs": "a"}))
    await until(lambda: bool(server.engine._requests))
    waiting.cancel()
    await server.until_idle()
