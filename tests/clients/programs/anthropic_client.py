"""Anthropic's client: messages, streams, tools, forms, counted tokens, models, failures."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any, Literal

import anthropic
import pydantic

ASKED: dict[str, Any] = {"model": "tgi", "system": [{"type": "text", "text": "You are brief.",
                                                     "cache_control": {"type": "ephemeral"}}],
                         "messages": [{"role": "user", "content": "What does len do?"}]}
GREEDY = {"temperature": 0, "top_p": 1}
"""Fields that the client no longer names, for Anthropic's newest models have them no more."""
WEATHER = {"name": "get_weather", "description": "Gives the weather of a place.", "strict": True, "input_schema": {
    "type": "object", "additionalProperties": False, "required": ["place", "days"], "properties": {
        "place": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "minimum": 1, "maximum": 9}}}}


class Opinion(pydantic.BaseModel):
    """Without bounds on numbers, which the client takes out of the schema."""

    mark: Literal["good", "bad"]
    is_sure: bool


def messages(client: anthropic.Anthropic) -> None:
    asked = {**ASKED, "max_tokens": 10, "extra_body": GREEDY}
    answer = client.messages.create(**asked, stop_sequences=["@@"], metadata={"user_id": "me"})
    assert (answer.type, answer.role) == ("message", "assistant")
    assert answer.stop_reason in ("max_tokens", "end_turn")
    counted = client.messages.count_tokens(**ASKED).input_tokens
    assert answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0) == counted
    with client.messages.stream(**asked) as events:
        kinds = [event.type for event in events]
        streamed = events.get_final_message()
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
    assert [block.to_dict() for block in streamed.content] == [block.to_dict() for block in answer.content]
    assert (streamed.stop_reason, streamed.usage.output_tokens) == (answer.stop_reason, answer.usage.output_tokens)
    begun = client.messages.create(**{**asked, "messages": [
        *ASKED["messages"], {"role": "assistant", "content": "It returns the"}]})
    assert begun.usage.output_tokens > 0


def tools(client: anthropic.Anthropic) -> None:
    asked = {**ASKED, "max_tokens": 200, "extra_body": GREEDY, "tools": [WEATHER]}
    called = client.messages.create(**asked, tool_choice={"type": "any", "disable_parallel_tool_use": True})
    assert called.stop_reason == "tool_use"
    [call] = called.content
    assert call.type == "tool_use"
    assert call.name == "get_weather"
    assert 1 <= call.input["days"] <= 9
    with client.messages.stream(**asked, tool_choice={"type": "any", "disable_parallel_tool_use": True}) as events:
        [streamed] = events.get_final_message().content
    assert streamed.type == "tool_use"
    assert streamed.input == call.input
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "sunny"}]}
    asked["messages"] = [*ASKED["messages"], called.to_param(), {"role": "user", "content": [result]}]
    assert client.messages.create(**{**asked, "max_tokens": 5}).usage.output_tokens > 0


def forms(client: anthropic.Anthropic) -> None:
    answer = client.messages.parse(**ASKED, max_tokens=60, output_format=Opinion)
    assert isinstance(answer.parsed_output, Opinion)


def failures(client: anthropic.Anthropic) -> None:
    too_long = [{"role": "user", "content": "word " * 9000}]
    for fields in ({"max_tokens": 0}, {"messages": too_long}):
        told = refused(lambda fields=fields: client.messages.create(**{**ASKED, "max_tokens": 5, **fields}))
        assert isinstance(told, anthropic.BadRequestError)
        assert told.type == "invalid_request_error"
        assert told.request_id
    told = refused(lambda: client.models.retrieve("none"))
    assert isinstance(told, anthropic.NotFoundError)
    assert told.type == "not_found_error"
    [model] = client.models.list()
    assert client.models.retrieve(model.id).max_input_tokens > 0


def refused(ask: Callable[[], object]) -> anthropic.APIStatusError | None:
    """Returns the error by which the server refuses; None if it does not."""
    try:
        ask()
    except anthropic.APIStatusError as error:
        return error
    return None


async def asynchronous(url: str) -> None:
    async with anthropic.AsyncAnthropic(base_url=url, api_key="unused", max_retries=0) as client:
        events = [event.type async for event in await client.beta.messages.create(
            **ASKED, max_tokens=8, stream=True, betas=["of-tomorrow"])]
        assert events[-1] == "message_stop"


if __name__ == "__main__":
    with anthropic.Anthropic(base_url=sys.argv[1], api_key="unused", max_retries=0) as anthropic_client:
        messages(anthropic_client)
        tools(anthropic_client)
        forms(anthropic_client)
        failures(anthropic_client)
    asyncio.run(asynchronous(sys.argv[1]))
    print("all passed")
