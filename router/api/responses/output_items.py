"""The items of a response's output, and the events that tell of them, from the deltas of the answer. Pure: a response
that comes whole has the items of the one that is streamed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.router.api.responses.input_items import PREFIXES, carried
from penstock.router.chat.deltas import Arguments, CallBegin, CallEnd, Content, Delta, Thinking

Event = dict[str, Any]
"""An event of a stream, but for its `sequence_number`."""
Logprobs = Sequence[dict[str, Any]]
_CALLS = ("function_call", "custom_tool_call")


class CalledAs(NamedTuple):
    """A tool as the client knows it; one that `is_custom` takes a text."""

    name: str
    namespace: str | None = None
    is_custom: bool = False


class OutputItems:
    """Makes items of deltas. `output` has those that are finished."""

    def __init__(
        self, response_id: str, call_id: Callable[[CallBegin], str], tools: Mapping[str, CalledAs] = {},
        carries_reasoning: bool = False,
    ) -> None:
        """Takes the tools by the names that the model has for them; and whether reasoning is told in the form that
        clients carry, too."""
        self.output: list[dict[str, Any]] = []
        self._response_id = response_id
        self._call_id = call_id
        self._tools = tools
        self._carries_reasoning = carries_reasoning
        self._item: dict[str, Any] | None = None
        self._pieces: list[str] = []
        self._logprobs: list[dict[str, Any]] = []

    def take(self, delta: Delta, logprobs: Logprobs = ()) -> list[Event]:
        """Takes the next delta, and returns the events that it brings. Logprobs are those of the tokens of a text."""
        match delta:
            case Thinking(text=text):
                return self._add_text("reasoning", text)
            case Content(text=text):
                return self._add_text("message", text, logprobs)
            case CallBegin():
                return [*self.close(), *self._begin_call(delta)]
            case Arguments(text=text):
                return self._add_arguments(text)
            case CallEnd():
                return self.close()

    def finish(self, is_whole: bool) -> list[Event]:
        """Ends the last item, and returns the events of that. An answer without any item is an empty message. The last
        item is not whole if the answer `is_whole` not, or has ended within a call."""
        begun = [] if self.output or self._item is not None else self._begin_part("message")
        has_call = self._item is not None and self._item["type"] in _CALLS
        return [*begun, *self.close("completed" if is_whole and not has_call else "incomplete")]

    def close(self, status: str = "completed") -> list[Event]:
        """Ends the item that is being written, if one is, and returns the events of that."""
        if self._item is None:
            return []
        item, text = self._item, "".join(self._pieces)
        kind, place = item["type"], self._place
        if kind in _CALLS:
            events, item = self._end_call(item, text)
        else:
            part = self._part(kind, text, self._logprobs)
            events = [{"type": f"response.{_text_name(kind)}.done", **place, "content_index": 0, "text": text,
                       **({"logprobs": self._logprobs} if kind == "message" else {})},
                      {"type": "response.content_part.done", **place, "content_index": 0, "part": part}]
            item = {**item, "content": [part]}
            if kind == "reasoning" and self._carries_reasoning:
                item["encrypted_content"] = carried(text)
        done = {**item, "status": status}
        events.append({"type": "response.output_item.done", "output_index": place["output_index"], "item": done})
        self.output.append(done)
        self._item, self._pieces, self._logprobs = None, [], []
        return events

    @property
    def _place(self) -> dict[str, Any]:
        assert self._item is not None
        return {"item_id": self._item["id"], "output_index": len(self.output)}

    def _begin(self, kind: str, **fields: Any) -> list[Event]:
        index = len(self.output)
        id = f"{PREFIXES[kind]}_{self._response_id.partition('_')[2]}_{index}"
        self._item = {"id": id, "type": kind, "status": "in_progress", **fields}
        return [{"type": "response.output_item.added", "output_index": index, "item": dict(self._item)}]

    def _begin_part(self, kind: str) -> list[Event]:
        """Begins an item of one part, a text."""
        fields = {"role": "assistant", "content": []} if kind == "message" else {"summary": [], "content": []}
        if kind == "reasoning" and self._carries_reasoning:
            fields["encrypted_content"] = ""
        return [*self._begin(kind, **fields), {
            "type": "response.content_part.added", **self._place, "content_index": 0, "part": self._part(kind, "", [])}]

    def _add_text(self, kind: str, text: str, logprobs: Logprobs = ()) -> list[Event]:
        if not text:
            self._logprobs += logprobs
            return []
        begun: list[Event] = []
        if self._item is None or self._item["type"] != kind:
            begun = [*self.close(), *self._begin_part(kind)]
        self._pieces.append(text)
        self._logprobs += logprobs
        return [*begun, {"type": f"response.{_text_name(kind)}.delta", **self._place, "content_index": 0, "delta": text,
                         **({"logprobs": [*logprobs]} if kind == "message" else {})}]

    def _begin_call(self, delta: CallBegin) -> list[Event]:
        tool = self._tools.get(delta.name, CalledAs(delta.name))
        fields = {"call_id": self._call_id(delta), "name": tool.name, "input" if tool.is_custom else "arguments": "",
                  **({} if tool.namespace is None else {"namespace": tool.namespace})}
        return self._begin("custom_tool_call" if tool.is_custom else "function_call", **fields)

    def _add_arguments(self, text: str) -> list[Event]:
        assert self._item is not None
        self._pieces.append(text)
        return [{"type": f"response.{_call_name(self._item)}.delta", **self._place, "delta": text}]

    def _end_call(self, item: dict[str, Any], text: str) -> tuple[list[Event], dict[str, Any]]:
        fields = {"input": text} if item["type"] == "custom_tool_call" else {"name": item["name"], "arguments": text}
        return [{"type": f"response.{_call_name(item)}.done", **self._place, **fields}], {**item, **fields}

    @staticmethod
    def _part(kind: str, text: str, logprobs: Logprobs) -> dict[str, Any]:
        if kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": [*logprobs]}


def _text_name(kind: str) -> str:
    return "output_text" if kind == "message" else "reasoning_text"


def _call_name(item: dict[str, Any]) -> str:
    return "custom_tool_call_input" if item["type"] == "custom_tool_call" else "function_call_arguments"
