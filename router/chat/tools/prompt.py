"""Tools in the words of a conversation, for models whose chat template says nothing of tools or of how to call them."""

import json
from collections.abc import Sequence
from typing import Any

from penstock.router.chat.tools.call_format import NAME
from penstock.router.chat.tools.families import PLAIN
from penstock.router.chat.tools.offer import Tool

Message = dict[str, Any]

PROMPT = (
    "If one of these functions helps, answer with a call of it and nothing else: a JSON object of the form "
    '{"name": the function\'s name, "parameters": an object with a value for each argument}. '
    'Write "; " between several calls.')


def add_to_messages(messages: Sequence[Message], text: str) -> list[Message]:
    """Adds `text` to the last message that is not the assistant's, or as a system message if there is none."""
    changed = list(messages)
    for position in reversed(range(len(changed))):
        message = changed[position]
        if message["role"] != "assistant":
            changed[position] = {**message, "content": f"{message['content']}\n---\n{text}"}
            return changed
    return [{"role": "system", "content": text}, *changed]


def describe(tools: Sequence[Tool]) -> str:
    """Returns the functions as JSON, for a model that can read it."""
    return json.dumps([tool.told["function"] for tool in tools], ensure_ascii=False)


def calls_as_text(message: Message) -> Message:
    """Returns a message with calls as one that has them as content, in the form that the prompt asks for."""
    if "tool_calls" not in message:
        return message
    calls = [call["function"] for call in message["tool_calls"]]
    texts = [_call(function["name"], function["arguments"]) for function in calls]
    before = message.get("content") or ""
    content = f"{before}\n" * bool(before) + PLAIN.separator.join(texts)
    rest = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**rest, "content": content}


def _call(name: str, arguments: str | dict[str, Any]) -> str:
    header = PLAIN.header.replace(NAME, json.dumps(name, ensure_ascii=False))
    arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    return header + json.dumps(arguments, ensure_ascii=False) + PLAIN.close
