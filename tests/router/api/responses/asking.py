"""What tests of responses share: what is asked, and how a stream is read."""

import json
from typing import Any

from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from tests.router.api.conftest import Server

URL = "/v1/responses"
WEATHER = {"type": "function", "name": "weather", "description": "Of a city.",
           "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
TIME = {"type": "function", "name": "time"}
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


async def ask(server: Server, **fields: object) -> dict[str, Any]:
    response = await server.post(URL, {"input": "Hello", **fields})
    assert response.status == 200, await response.text()
    answer: dict[str, Any] = await response.json()
    return answer


async def stream(server: Server, **fields: object) -> list[dict[str, Any]]:
    """The events of a stream that ends as it should; OpenAI's types can read each of them."""
    response = await server.post(URL, {"input": "Hello", "stream": True, **fields})
    assert (response.status, response.content_type) == (200, "text/event-stream"), await response.text()
    return read(await response.text())


def read(text: str) -> list[dict[str, Any]]:
    """The events of a stream's text."""
    frames = text.split("\n\n")
    assert frames.pop() == ""
    events = []
    for frame in frames:
        name, data, *_ = frame.splitlines()
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        EVENT.validate_python(event)
        events.append(event)
    assert [event["sequence_number"] for event in events] == list(
        range(events[0]["sequence_number"], events[0]["sequence_number"] + len(events)))
    return events


def order(events: list[dict[str, Any]]) -> list[str]:
    """The types of events, of deltas one after the other only the first."""
    names = [event["type"].removeprefix("response.") for event in events]
    return [name for number, name in enumerate(names)
            if not (number and name == names[number - 1] and name.endswith(".delta"))]


def lasting(response: dict[str, Any]) -> dict[str, Any]:
    """A response without what tells of when, where, and how it was asked."""
    usage = {**response["usage"], "input_tokens_details": None}
    return {**response, "created_at": 0, "completed_at": 0, "id": "", "usage": usage,
            "output": [{**item, "id": "", **({"call_id": ""} if "call_id" in item else {})}
                       for item in response["output"]]}
