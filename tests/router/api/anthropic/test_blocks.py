"""Events of blocks, in the orders that Anthropic's documentation shows, and the messages that clients make of them."""

from typing import Any

import pytest
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import RawMessageStreamEvent
from pydantic import TypeAdapter

from penstock.router.api.anthropic.blocks import Blocks, Event, assembled
from penstock.router.api.anthropic.signatures import carried, signature
from penstock.router.chat.deltas import Arguments, CallBegin, CallEnd, Content, Delta, Thinking

EVENTS: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)
START: Event = {"type": "message_start", "message": {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None,
    "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 0}}}
ENDS: list[Event] = [
    {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None},
     "usage": {"output_tokens": 5}}, {"type": "message_stop"}]

CALL = [CallBegin(0, "f"), Arguments(0, '{"a": '), Arguments(0, '"é"}'), CallEnd(0)]
SECOND = [CallBegin(1, "g"), Arguments(1, "{}"), CallEnd(1)]
ORDERS: dict[str, tuple[list[Delta], list[str]]] = {
    "text": ([Content("a"), Content("b")], ["start text", "text_delta", "text_delta", "stop"]),
    "call": ([*CALL], ["start tool_use", "input_json_delta", "input_json_delta", "stop"]),
    "text and calls": (
        [Content("a"), *CALL, *SECOND, Content("b")],
        ["start text", "text_delta", "stop", "start tool_use", "input_json_delta", "input_json_delta", "stop",
         "start tool_use", "input_json_delta", "stop", "start text", "text_delta", "stop"]),
    "thinking": (
        [Thinking("h"), Thinking("m"), Content("a")],
        ["start thinking", "thinking_delta", "thinking_delta", "signature_delta", "stop", "start text", "text_delta",
         "stop"]),
    "thinking and a call": (
        [Thinking("hm"), *SECOND],
        ["start thinking", "thinking_delta", "signature_delta", "stop", "start tool_use", "input_json_delta", "stop"]),
    "ends in thinking": ([Thinking("h")], ["start thinking", "thinking_delta", "signature_delta", "stop"]),
    "ends in a call": (
        [CallBegin(0, "f"), Arguments(0, '{"a": [1, 2], "b": "')], ["start tool_use", "input_json_delta", "stop"]),
    "nothing": ([], []),
}


def made(deltas: list[Delta], shows_thoughts: bool = True) -> list[Event]:
    blocks = Blocks(lambda begin: f"call_{begin.index}", shows_thoughts)
    events = [event for delta in deltas for event in blocks.push([delta])]
    return [START, *events, *blocks.close(), *ENDS]


def short(event: Event) -> str:
    match event["type"]:
        case "content_block_start":
            return f"start {event['content_block']['type']}"
        case "content_block_delta":
            return str(event["delta"]["type"])
    return str(event["type"]).removeprefix("content_block_")


def accumulated(events: list[Event]) -> dict[str, Any]:
    """The message that Anthropic's client makes of the events."""
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    for event in events:
        snapshot = accumulate_event(event=EVENTS.validate_python(event), current_snapshot=snapshot, json_bufs=buffers)
    found: dict[str, Any] = snapshot.to_dict()
    assert found.pop("stop_details") is None
    return found


@pytest.mark.parametrize("name", ORDERS)
def test_orders(name: str) -> None:
    deltas, order = ORDERS[name]
    events = made(deltas)
    assert [short(event) for event in events[1:-2]] == order
    opened: int | None = None
    for event in events[1:-2]:
        if event["type"] == "content_block_start":
            assert opened is None
            opened = event["index"]
        assert event["index"] == opened
        opened = None if event["type"] == "content_block_stop" else opened


@pytest.mark.parametrize("name", ORDERS)
def test_the_whole_message_is_what_the_client_makes_of_the_stream(name: str) -> None:
    events = made(ORDERS[name][0])
    assert assembled(events) == {**accumulated(events), "usage": {"input_tokens": 1, "output_tokens": 5}}


def test_a_whole_message() -> None:
    message = assembled(made([Thinking("hm"), Content("a"), Content("b"), *CALL, *SECOND]))
    assert message["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": signature("hm", is_shown=True)},
        {"type": "text", "text": "ab"},
        {"type": "tool_use", "id": "call_0", "name": "f", "input": {"a": "é"}},
        {"type": "tool_use", "id": "call_1", "name": "g", "input": {}}]
    assert message["stop_reason"] == "end_turn"


def test_thoughts_that_are_not_shown() -> None:
    events = made([Thinking("h"), Thinking("m"), Content("a")], shows_thoughts=False)
    assert [short(event) for event in events[1:4]] == ["start thinking", "signature_delta", "stop"]
    block = assembled(events)["content"][0]
    assert (block["thinking"], carried(block["signature"])) == ("", "hm")


@pytest.mark.parametrize(("pieces", "found"), [
    (["{'a': 1}"], {"INVALID_JSON": "{'a': 1}"}), (["[1]"], {"INVALID_JSON": "[1]"}), ([], {}),
    (['{"a": {"b": [1, 2'], {"a": {"b": [1, 2]}}), (['{"a": 1, "b": "cu'], {"a": 1})])
def test_arguments_that_are_not_whole(pieces: list[str], found: object) -> None:
    events = made([CallBegin(0, "f"), *(Arguments(0, piece) for piece in pieces)])
    assert assembled(events)["content"][0]["input"] == found
