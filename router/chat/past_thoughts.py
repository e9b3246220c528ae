"""The thoughts of earlier answers, in the words of templates that have them in a way of their own."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Any

from penstock.router.chat.thinking_format import taught_format

_Message = dict[str, Any]
NAMES = ("reasoning_content", "thinking", "reasoning")
"""Names under which clients send thoughts back; templates read the first, a few the second."""
_PARTS = re.compile(r"""\[['"]type['"]\] == ['"]thinking['"]""")
"""Is found in templates that take thoughts as parts of a content."""


def thoughts_of(message: _Message) -> str | None:
    """Returns the thoughts before a message, if the client tells of any."""
    found = next((message[name] for name in NAMES if message.get(name)), None)
    return found if isinstance(found, str) else None


def fitted(messages: Sequence[_Message], template: str) -> list[_Message]:
    """Returns the messages as the template of this source can have them."""
    form = taught_format(template)
    if form is not None and form.has_channels:
        return [*_in_channels(messages)]
    if form is not None and _takes_parts(template):
        return [*map(_in_parts, messages)]
    return [*messages]


@lru_cache
def _takes_parts(template: str) -> bool:
    return _PARTS.search(template) is not None


def _in_parts(message: _Message) -> _Message:
    """Returns an answer whose thoughts are a part of its content."""
    thoughts = thoughts_of(message)
    if thoughts is None or message["role"] != "assistant":
        return message
    rest = {name: value for name, value in message.items() if name not in NAMES}
    text = [{"type": "text", "text": message["content"]}] if message.get("content") else []
    return {**rest, "content": [{"type": "thinking", "thinking": thoughts}, *text]}


def _in_channels(messages: Sequence[_Message]) -> Iterator[_Message]:
    """Yields messages of which each has one call at most, with its result behind it, and no text beside both thoughts
    and a call: such a template has a place for one of them."""
    place = 0
    while place < len(messages):
        calls = _one_by_one(messages[place])
        place += 1
        results = [*takewhile(lambda message: message["role"] == "tool", messages[place:])] if len(calls) > 1 else []
        place += len(results)
        for result in results:
            if calls:
                ids = [call["tool_calls"][0].get("id") for call in calls]
                yield calls.pop(ids.index(result["tool_call_id"]) if result.get("tool_call_id") in ids else 0)
            yield result
        yield from calls


def _one_by_one(message: _Message) -> list[_Message]:
    """Returns a message for each of its calls."""
    if "tool_calls" not in message:
        return [message]
    texts = [text for text in (thoughts_of(message), message.get("content")) if text]
    rest = {name: value for name, value in message.items() if name not in (*NAMES, "content")}
    first, *others = message["tool_calls"]
    thoughts = {"thinking": "\n\n".join(texts)} if texts else {}
    return [{**rest, **thoughts, "tool_calls": [first]}, *({**rest, "tool_calls": [call]} for call in others)]
