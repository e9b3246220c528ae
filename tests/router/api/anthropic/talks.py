"""What tests of messages share: Anthropic's own client, bodies, and how a stream is read."""

import json
from typing import Any, NamedTuple

import anthropic

from tests.router.api.conftest import Server

TEXT = "Hello wörld, 😀 is all."
HELLO = [{"role": "user", "content": "Hello"}]
WEATHER = {"name": "weather", "description": "Of a city.", "input_schema": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Åbo"}}\n</tool_call>'


class Frame(NamedTuple):
    """An event of a stream: its name, its data and its id, which may be empty."""

    name: str
    data: dict[str, Any]
    id: str = ""


def anthropic_client(server: Server, key: str = "unused") -> anthropic.AsyncAnthropic:
    """Returns a client to use by `async with`. It reads no certificates, which would take longer than most tests."""
    return anthropic.AsyncAnthropic(base_url=str(server.client.make_url("")), api_key=key, max_retries=0,
                                    http_client=anthropic.DefaultAsyncHttpxClient(verify=False))


async def answer(server: Server, **fields: object) -> dict[str, Any]:
    """The whole message."""
    response = await server.post("/v1/messages", {"model": "tgi", "max_tokens": 100, "messages": HELLO, **fields})
    assert response.status == 200, await response.text()
    message: dict[str, Any] = await response.json()
    return message


async def stream(server: Server, headers: dict[str, str] | None = None, **fields: object) -> list[Frame]:
    """The events of the message, without pings."""
    body = {"model": "tgi", "max_tokens": 100, "messages": HELLO, "stream": True, **fields}
    response = await server.client.post("/v1/messages", json=body, headers=headers or {})
    assert (response.status, response.content_type) == (200, "text/event-stream"), await response.text()
    return frames(await response.text())


def frames(text: str) -> list[Frame]:
    found = []
    *blocks, rest = text.split("\n\n")
    assert rest == ""
    for block in blocks:
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        data = json.loads(fields["data"])
        assert fields["event"] == data["type"]
        found.append(Frame(fields["event"], data, fields.get("id", "")))
    return [frame for frame in found if frame.name != "ping"]


def outline(found: list[Frame]) -> list[str]:
    """The names of events in a row, in short: equal ones in a row are one."""
    names = [frame.name + (f" {frame.data['delta']['type']}" if frame.name == "content_block_delta" else "")
             + (f" {frame.data['content_block']['type']}" if frame.name == "content_block_start" else "")
             for frame in found]
    return [name for number, name in enumerate(names) if not number or names[number - 1] != name]


async def refusal(server: Server, **fields: object) -> tuple[int, str, str]:
    """The status, the type and the sentence of an error."""
    response = await server.post("/v1/messages", {"model": "tgi", "max_tokens": 100, "messages": HELLO, **fields})
    failure = await response.json()
    assert failure["type"] == "error", failure
    assert failure["request_id"] == response.headers["request-id"] == response.headers["x-request-id"]
    return response.status, failure["error"]["type"], failure["error"]["message"]
