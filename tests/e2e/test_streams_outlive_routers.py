"""A stream of each API's conversations goes on behind the last event that came before its router was killed, by the
header of the event stream alone."""

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest

from tests.e2e.server import Server, serve

TALK = [{"role": "user", "content": "Give me numbers."}]
NUMBERS = {"type": "array", "items": {"type": "integer", "minimum": 10, "maximum": 99}, "minItems": 60}
"""An answer of this form does not end before it is long."""
FORM = {"type": "json_schema", "name": "numbers", "schema": NUMBERS}
ASKED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": TALK, "max_tokens": 300, "response_format": {"type": "json_schema", "json_schema": FORM}},
    "/v1/messages": {"model": "tgi", "messages": TALK, "max_tokens": 300, "output_config": {"format": FORM}},
    "/v1/responses": {"input": TALK, "max_output_tokens": 300, "text": {"format": FORM}},
}
READS_IDS = {"accept": "text/event-stream"}
PASSING = ("created", "created_at", "completed_at", "usage", "input_tokens_details")
"""What tells of when and how an answer was computed."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve(tmp_path_factory.mktemp("server")) as server:
        yield server


async def events(session: aiohttp.ClientSession, server: Server, path: str, **headers: str
                 ) -> AsyncIterator[tuple[str, str, Any]]:
    """The name of the answer, and the id and the data of each event."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with session.post(f"{server.url}{path}", json={**ASKED[path], "stream": True},
                            headers={**READS_IDS, **named}) as response:
        assert response.status == 200, await response.text()
        while frame := await response.content.readuntil(b"\n\n"):
            fields = dict(line.split(": ", 1) for line in frame.decode().strip().splitlines() if ": " in line)
            if "id" in fields:
                yield response.headers["penstock-answer"], fields["id"], lasting(fields["data"])


def lasting(data: str) -> Any:
    return data if data == "[DONE]" else without_passing(json.loads(data))


def without_passing(value: Any) -> Any:
    match value:
        case dict():
            return {name: without_passing(inner) for name, inner in value.items() if name not in PASSING}
        case list():
            return [without_passing(inner) for inner in value]
    return value


async def killed(server: Server, found: AsyncIterator[tuple[str, str, Any]]) -> list[tuple[str, str, Any]]:
    """The events that come until the router is killed, after a dozen of them."""
    events = []
    with contextlib.suppress(aiohttp.ClientError, ConnectionError):
        async for event in found:
            events.append(event)
            if len(events) == 12:
                [router] = server.children("router")
                router.kill()
    return events


@pytest.mark.parametrize("path", ASKED)
async def test_a_stream_goes_on(server: Server, path: str) -> None:
    async with aiohttp.ClientSession() as session:
        before = await killed(server, events(session, server, path))
        answer, last, _ = before[-1]
        rest = [event async for event in events(session, server, path, last_event_id=last)]
        whole = [event async for event in events(session, server, path, penstock_answer=answer)]
    assert len(before) >= 12
    assert len(rest) > 12
    assert [data for _, _, data in before + rest] == [data for _, _, data in whole]
