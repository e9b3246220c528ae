"""Streams of messages that break, and go on behind any of their events."""

from typing import Any

import pytest

from penstock.router.chat.template import ChatTemplate
from tests.router.api.anthropic.talks import CALL, WEATHER, Frame, answer, stream
from tests.router.api.chat_templates import HERMES
from tests.router.api.conftest import Server, Start
from tests.router.api.resuming import READS_IDS, SeededFleet, with_other_numerics

ASKED: dict[str, Any] = {"tools": [WEATHER], "system": "Be brief."}


@pytest.fixture
async def server(start: Start, hermes: Any) -> Server:
    return await start(template=hermes, answer=f"Let me see. {CALL}<|im_end|>", make_fleet=SeededFleet)


def lasting(frames: list[Frame]) -> list[Frame]:
    """The events without what tells of the cache."""
    for frame in frames:
        usage = frame.data.get("usage") or frame.data.get("message", {}).get("usage") or {}
        for name in ("cache_read_input_tokens", "input_tokens"):
            usage.pop(name, None)
    return frames


async def test_a_stream_goes_on_behind_every_event(server: Server) -> None:
    """The ids of the message and of its calls stay the same."""
    whole = lasting(await stream(server, READS_IDS, **ASKED))
    assert len({frame.id for frame in whole}) == len(whole) > 10
    for number, frame in enumerate(whole, 1):
        rest = await stream(server, {**READS_IDS, "last-event-id": frame.id}, **ASKED)
        assert lasting(rest) == whole[number:]


@pytest.mark.parametrize("display", ["summarized", "omitted"])
async def test_thoughts_go_on_behind_every_event(start: Start, display: str) -> None:
    """Also where the signature carries them, which comes after all of them."""
    template = ChatTemplate({"default": HERMES + "{# </think> #}<think>\n"}, {})
    server = await start(template=template, make_fleet=SeededFleet,
                         answer=f"1 2 3 4 5 6\n</think>\n\nSo: {CALL}\n{CALL}<|im_end|>")
    asked = {**ASKED, "thinking": {"type": "adaptive", "display": display}}
    whole = lasting(await stream(server, READS_IDS, **asked))
    blocks = [frame.data["content_block"]["type"] for frame in whole if frame.name == "content_block_start"]
    assert blocks == ["thinking", "text", "tool_use", "tool_use"]
    for number, frame in enumerate(whole, 1):
        rest = await stream(server, {**READS_IDS, "last-event-id": frame.id}, **asked)
        assert lasting(rest) == whole[number:]


async def test_a_whole_answer_is_repeated(server: Server) -> None:
    response = await server.client.post("/v1/messages", json={
        "model": "tgi", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello"}], **ASKED})
    first = await response.json()
    again = await server.client.post("/v1/messages", headers={"penstock-answer": response.headers["penstock-answer"]},
                                     json={"model": "tgi", "max_tokens": 100, **ASKED,
                                           "messages": [{"role": "user", "content": "Hello"}]})
    second = await again.json()
    assert (second["id"], second["content"]) == (first["id"], first["content"])
    assert (await answer(server, **ASKED))["id"] != first["id"]


async def test_what_can_not_go_on(server: Server) -> None:
    body = {"model": "tgi", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello"}], "stream": True}
    last = (await stream(server, READS_IDS))[-1].id
    for headers, fields, status, kind in (
            ({"last-event-id": last}, {"max_tokens": 5}, 400, "invalid_request_error"),
            ({"last-event-id": last, "penstock-output-ids": "5"}, {}, 400, "invalid_request_error")):
        response = await server.client.post("/v1/messages", json={**body, **fields}, headers=headers)
        assert (response.status, (await response.json())["error"]["type"]) == (status, kind)
    with_other_numerics(server)
    response = await server.client.post("/v1/messages", json=body, headers={"last-event-id": last})
    assert (response.status, (await response.json())["error"]["type"]) == (409, "conflict_error")
