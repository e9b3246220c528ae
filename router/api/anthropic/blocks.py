"""From the parts of an answer to the events of its blocks, and back to the blocks of a whole answer. Pure."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import orjson
from pydantic_core import from_json, to_json

from penstock.router.api.anthropic.signatures import signature
from penstock.router.chat.deltas import Arguments, CallBegin, CallEnd, Content, Delta, Thinking

Event = dict[str, Any]
"""An event of a stream, whose name is its `type`."""


class Blocks:
    """Makes events of an answer's blocks: texts, thoughts and calls of tools, of which one is open at a time."""

    def __init__(self, call_id: Callable[[CallBegin], str], shows_thoughts: bool = True) -> None:
        """Takes the function that names a call. Thoughts that are not shown are in the signatures of their blocks."""
        self.num_whole_calls = 0
        self._call_id = call_id
        self._shows_thoughts = shows_thoughts
        self._index = -1
        self._open: str | None = None
        """The type of the open block."""
        self._thoughts: list[str] = []

    def push(self, deltas: Iterable[Delta]) -> Iterator[Event]:
        """Yields the events of the next parts."""
        for delta in deltas:
            match delta:
                case Content(text):
                    yield from self._into({"type": "text", "text": ""})
                    yield self._delta({"type": "text_delta", "text": text})
                case Thinking(text):
                    yield from self._into({"type": "thinking", "thinking": "", "signature": ""})
                    self._thoughts.append(text)
                    if self._shows_thoughts:
                        yield self._delta({"type": "thinking_delta", "thinking": text})
                case CallBegin():
                    yield from self.close()
                    yield from self._into({"type": "tool_use", "id": self._call_id(delta), "name": delta.name,
                                           "input": {}})
                case Arguments(_, text):
                    yield self._delta({"type": "input_json_delta", "partial_json": text})
                case CallEnd():
                    self.num_whole_calls += 1
                    yield from self.close()

    def close(self) -> Iterator[Event]:
        """Yields the events that end the open block, if there is one."""
        if self._open == "thinking":
            signed = signature("".join(self._thoughts), self._shows_thoughts)
            yield self._delta({"type": "signature_delta", "signature": signed})
            self._thoughts.clear()
        if self._open is not None:
            self._open = None
            yield {"type": "content_block_stop", "index": self._index}

    def _into(self, block: dict[str, Any]) -> Iterator[Event]:
        """Yields the events by which a block of this type is open, which has nothing in it yet if it is new."""
        if self._open == block["type"]:
            return
        yield from self.close()
        self._index += 1
        self._open = block["type"]
        yield {"type": "content_block_start", "index": self._index, "content_block": block}

    def _delta(self, delta: dict[str, Any]) -> Event:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}


def assembled(events: Iterable[Event]) -> dict[str, Any]:
    """Returns the message that the events of a whole stream tell, as a client puts it together."""
    message: dict[str, Any] = {}
    content: list[dict[str, Any]] = []
    pieces: list[str] = []
    for event in events:
        match event["type"]:
            case "message_start":
                message = {**event["message"], "content": content}
            case "content_block_start":
                content.append({**event["content_block"]})
                pieces = []
            case "content_block_delta":
                pieces += _piece(content[-1], event["delta"])
            case "content_block_stop":
                _fill(content[-1], "".join(pieces))
            case "message_delta":
                message.update(event["delta"])
                message["usage"] = {**message["usage"], **event["usage"]}
    return message


def _piece(block: dict[str, Any], delta: dict[str, Any]) -> list[str]:
    """Returns the text that a delta adds to a block; a signature is put in at once."""
    if delta["type"] == "signature_delta":
        block["signature"] = delta["signature"]
        return []
    return [delta[{"text": "text", "thinking": "thinking", "tool_use": "partial_json"}[block["type"]]]]


def _fill(block: dict[str, Any], text: str) -> None:
    """Puts all of its text into a block."""
    if block["type"] != "tool_use":
        block[block["type"]] = text
    elif text:
        block["input"] = _arguments(text)


def _arguments(text: str) -> dict[str, Any] | orjson.Fragment:
    """Returns the arguments of a call; where the answer's end has cut them off, those that are whole. What is no JSON
    is told under the name by which Anthropic's clients send such arguments back. Integers that orjson can't write are
    in JSON that is written already."""
    try:
        found = from_json(text, allow_partial=True)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        return {"INVALID_JSON": text}
    try:
        orjson.dumps(found)
    except orjson.JSONEncodeError:
        return orjson.Fragment(to_json(found, inf_nan_mode="null"))
    return found
