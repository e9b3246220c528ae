"""Anthropic's own client against `/v1/messages`."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import anthropic
import pytest
from pydantic import BaseModel

from penstock.router.api.http import sse
from tests.fakes import LIMITS
from tests.router.api.anthropic.talks import (
    CALL,
    HELLO,
    TEXT,
    WEATHER,
    answer,
    anthropic_client,
    outline,
    refusal,
    stream,
)
from tests.router.api.conftest import Server, Start

ASKED: Any = {"model": "tgi", "max_tokens": 100, "messages": HELLO}
TEXT_EVENTS = ["message_start", "content_block_start text", "content_block_delta text_delta", "content_block_stop",
               "message_delta", "message_stop"]


@pytest.fixture
async def server(start: Start, hermes: Any) -> Server:
    return await start(template=hermes)


@pytest.fixture
async def client(server: Server) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic_client(server) as client:
        yield client


async def test_a_whole_answer(server: Server, client: anthropic.AsyncAnthropic) -> None:
    message = await client.messages.create(**ASKED)
    assert (message.type, message.role, message.model) == ("message", "assistant", "demo")
    assert message.id.startswith("msg_")
    assert [(block.type, block.text) for block in message.content if block.type == "text"] == [("text", TEXT)]
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    assert message._request_id is not None
    prompt = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    assert message.usage.input_tokens == len(await server.tokenizer.encode(prompt, add_special_tokens=False))
    assert message.usage.output_tokens > 1
    assert message.usage.service_tier == "standard"


async def test_a_stream_is_the_whole_answer(client: anthropic.AsyncAnthropic) -> None:
    async with client.messages.stream(**ASKED) as events:
        texts = [text async for text in events.text_stream]
        message = await events.get_final_message()
    assert "".join(texts) == TEXT
    assert len(texts) > 3
    whole = await client.messages.create(**ASKED)
    assert message.content[0].model_dump(exclude={"parsed_output"}) == whole.content[0].model_dump()
    assert (message.stop_reason, message.usage) == (whole.stop_reason, whole.usage)


async def test_the_order_of_events(server: Server) -> None:
    found = await stream(server)
    assert outline(found) == TEXT_EVENTS
    first, last = found[0].data["message"], found[-2].data
    assert (first["content"], first["stop_reason"], first["usage"]["output_tokens"]) == ([], None, 0)
    assert last["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert all(frame.id == "" for frame in found)


async def test_the_beta_client(client: anthropic.AsyncAnthropic) -> None:
    """It adds to the path, and headers of versions that nobody knows."""
    edits: Any = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    message = await client.beta.messages.create(
        **ASKED, betas=["context-management-2025-06-27", "of-tomorrow"], context_management=edits,
        extra_headers={"anthropic-version": "2099-01-01"})
    assert message.context_management is not None
    assert message.context_management.applied_edits == []


@pytest.mark.parametrize(("fields", "reason", "stop", "text"), [
    ({"max_tokens": 3}, "max_tokens", None, None),
    ({"stop_sequences": ["!", "is a"]}, "stop_sequence", "is a", "Hello wörld, 😀 "),
    ({}, "end_turn", None, TEXT),
])
async def test_reasons_to_stop(
    client: anthropic.AsyncAnthropic, fields: Any, reason: str, stop: str | None, text: str | None
) -> None:
    message = await client.messages.create(**{**ASKED, **fields})
    assert (message.stop_reason, message.stop_sequence) == (reason, stop)
    assert text is None or message.content[0].model_dump()["text"] == text


async def test_an_answer_that_fills_the_context(start: Start, hermes: Any) -> None:
    """However many tokens are asked for."""
    limits = replace(LIMITS, max_input_tokens=30, max_total_tokens=40)
    server = await start(limits, template=hermes, answer="and so on ")
    message = await answer(server, max_tokens=32_000)
    assert message["stop_reason"] == "model_context_window_exceeded"
    assert message["usage"]["input_tokens"] + message["usage"]["output_tokens"] == 40


async def test_a_call_of_a_tool(start: Start, hermes: Any) -> None:
    server = await start(template=hermes, answer=f"Let me see. {CALL}<|im_end|>")
    async with anthropic_client(server) as client:
        asked: Any = {**ASKED, "tools": [WEATHER]}
        message = await client.messages.create(**asked)
        async with client.messages.stream(**asked) as events:
            streamed = await events.get_final_message()
    text, call = message.content
    assert text.model_dump()["text"] == "Let me see."
    assert call.type == "tool_use"
    assert (call.name, call.input) == ("weather", {"city": "Åbo"})
    assert message.stop_reason == streamed.stop_reason == "tool_use"
    assert streamed.content[1].model_dump(exclude={"id"}) == call.model_dump(exclude={"id"})
    assert outline(await stream(server, tools=[WEATHER])) == [
        *TEXT_EVENTS[:4], "content_block_start tool_use", "content_block_delta input_json_delta", *TEXT_EVENTS[3:]]


async def test_the_rest_of_a_prompt_is_in_the_cache(start: Start, hermes: Any) -> None:
    """And counts once."""
    server = await start(template=hermes, answer=f"{CALL}<|im_end|>")
    asked = {"system": "Be brief. " * 20, "tools": [WEATHER]}
    first = await answer(server, **asked)
    call = first["content"][0]
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "Fog"}
    talk = [*HELLO, {"role": "assistant", "content": first["content"]}, {"role": "user", "content": [result]}]
    second = await answer(server, **asked, messages=talk)
    assert first["usage"]["cache_read_input_tokens"] == second["usage"]["cache_creation_input_tokens"] == 0
    counted = await (await server.post("/v1/messages/count_tokens", {"model": "m", "messages": talk, **asked})).json()
    usage = second["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == counted["input_tokens"]
    assert usage["cache_read_input_tokens"] >= first["usage"]["input_tokens"] // 16 * 16


async def test_pings_keep_a_stream_alive(
    server: Server, client: anthropic.AsyncAnthropic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "KEEP_ALIVE", 0.02)
    server.fleet.may_answer.clear()
    events = await client.messages.create(**ASKED, stream=True)
    await asyncio.sleep(0.1)
    server.fleet.may_answer.set()
    assert [event.type async for event in events][:2] == ["message_start", "content_block_start"]


async def test_models(server: Server, client: anthropic.AsyncAnthropic) -> None:
    models = [model async for model in client.models.list(limit=1)]
    assert [(model.id, model.display_name, model.type, model.lifecycle) for model in models] == [
        ("demo", "demo", "model", "active")]
    assert (await client.models.retrieve("demo")).max_input_tokens == LIMITS.max_input_tokens
    with pytest.raises(anthropic.NotFoundError):
        await client.models.retrieve("none")
    assert (await (await server.client.get("/v1/models")).json())["object"] == "list"


class Weather(BaseModel):
    """What the answer shall tell."""

    city: str
    is_warm: bool


async def test_an_answer_in_a_form(start: Start, hermes: Any, grammars: Any) -> None:
    """The client makes an object of it."""
    server = await start(template=hermes, grammars=grammars, answer='{"city":"Åbo","is_warm":false}<|im_end|>')
    async with anthropic_client(server) as client:
        message = await client.messages.parse(**ASKED, output_format=Weather)
    assert message.parsed_output == Weather(city="Åbo", is_warm=False)
    assert len(server.fleet.masks) > 5
    asked = {"output_format": {"type": "json_schema", "schema": Weather.model_json_schema()}}
    assert (await answer(server, **asked))["content"][0]["text"] == '{"city":"Åbo","is_warm":false}'
    twice = {**asked, "output_config": {"format": asked["output_format"]}}
    assert "one can be given, not both" in (await refusal(server, **twice))[2]


async def test_a_tool_that_must_be_called(start: Start, hermes: Any, grammars: Any) -> None:
    """Every token of the answer follows its grammar."""
    server = await start(template=hermes, grammars=grammars, answer=f"{CALL}<|im_end|>")
    message = await answer(server, tools=[WEATHER], tool_choice={"type": "tool", "name": "weather",
                                                                "disable_parallel_tool_use": True})
    assert [(block["type"], block["input"]) for block in message["content"]] == [("tool_use", {"city": "Åbo"})]
    assert len(server.fleet.masks) >= message["usage"]["output_tokens"]
