"""The messages of a chat: OpenAI's types of them, read into what chat templates expect."""

from collections.abc import Sequence
from typing import Annotated, Any

import orjson
from pydantic import ConfigDict, Field

from penstock.router.chat.template import ChatTemplate
from penstock.router.errors import ValidationError
from penstock.router.shapes import Body
from penstock.system.json_objects import MAX_PARTS, check_amount

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
"""OpenAI's roles."""
_SAME = {"developer": "system", "function": "tool"}
"""Roles that templates have under another name."""
MAX_ITEMS = 10_000
"""Messages of a body, and the parts and calls in them. Reading them takes 10 to 20 µs each, while all others wait."""

MAX_FIELDS = 128
"""Of a message beside those that are known, and variables of a template."""


def count_items(messages: object) -> object:
    """Returns the unread `messages` unchanged; ValueError if they have too many items."""
    if isinstance(messages, list):
        number = len(messages)
        if number <= MAX_ITEMS:
            number += sum(
                len(inner) for message in messages if isinstance(message, dict)
                for inner in (message.get("content"), message.get("tool_calls")) if isinstance(inner, list))
        if number > MAX_ITEMS:
            raise ValueError(f"supports up to {MAX_ITEMS} messages, parts and calls in all. Given: {number}")
    return messages


class Part(Body):
    """A part of a content: a `text`, or a `refusal` of an earlier answer. Others are refused by their type."""

    type: str
    text: str | None = None
    refusal: str | None = None


class CalledFunction(Body):
    """The function of a call. `arguments` is JSON as a string; TGI's clients send an object."""

    name: str
    arguments: str | dict[str, Any] | None = None


class ToolCall(Body):
    """A call that an earlier answer made. Some clients number their calls instead of naming them."""

    id: str | int | None = None
    type: str | None = None
    function: CalledFunction | None = None


class Message(Body):
    """A message of a conversation. `function_call` is what `tool_calls` was once. Fields that are not named here are
    handed to the chat template."""

    model_config = ConfigDict(extra="allow")

    role: str
    content: str | Annotated[list[Part], Field(fail_fast=True)] | None = None
    tool_calls: Annotated[list[ToolCall], Field(fail_fast=True)] | None = None
    function_call: CalledFunction | None = None
    refusal: str | None = None
    audio: Any = None


def read_messages(
    messages: Sequence[Message], template: ChatTemplate, chat_template: str | None
) -> list[dict[str, Any]]:
    """Returns the messages as the template of this name expects them: contents as texts, what is null left out.

    Arguments of calls are objects, or JSON. ValidationError names what is missing, unknown or not served.
    """
    functions = (function for message in messages
                 for function in (message.function_call, *(call.function for call in message.tool_calls or ())))
    arguments = [function.arguments for function in functions if function is not None]
    try:
        check_amount("".join(each for each in arguments if isinstance(each, str)).encode(), MAX_PARTS)
    except ValueError as error:
        raise ValidationError(f"`messages` must not have {error} in the arguments of all calls together") from error
    return [_read(message, f"messages[{index}]", template, chat_template) for index, message in enumerate(messages)]


def _read(message: Message, where: str, template: ChatTemplate, chat_template: str | None) -> dict[str, Any]:
    if message.audio is not None:
        raise ValidationError(f"`{where}.audio` is not supported: this model takes nothing but text")
    read: dict[str, Any] = {"role": _read_role(message.role, where, template, chat_template)}
    calls = [_read_call(call, f"{where}.tool_calls[{number}]") for number, call in enumerate(message.tool_calls or ())]
    if message.function_call is not None and not calls:
        calls = [_read_call(ToolCall(function=message.function_call), f"{where}.function_call")]
    content = message.refusal if message.content is None else message.content
    if content is None and message.role == "function":
        content = ""
    if content is not None:
        read["content"] = _read_content(content, where)
    elif not calls:
        raise ValidationError(f"`{where}` must have `content` or `tool_calls`")
    others = message.model_extra or {}
    if len(others) > MAX_FIELDS:
        raise ValidationError(f"`{where}` must have at most {MAX_FIELDS} fields that are unknown. Given: {len(others)}")
    read.update(others)
    return {**read, "tool_calls": calls} if calls else read


def _read_role(role: str, where: str, template: ChatTemplate, chat_template: str | None) -> str:
    """Returns the role by the name that the template has for it."""
    if template.knows_role(role, chat_template):
        return role
    if role not in ROLES:
        raise ValidationError(f"`{where}.role` must be one of {', '.join(ROLES)}, or one that the chat template "
                              f"knows. Given: \"{role:.40}\"")
    return _SAME.get(role, role)


def _read_content(content: str | list[Part], where: str) -> str:
    if isinstance(content, str):
        return content
    texts = []
    for number, part in enumerate(content):
        text = {"text": part.text, "refusal": part.refusal}.get(part.type)
        if text is None:
            raise ValidationError(f"`{where}.content[{number}]` must be of type \"text\", this model takes nothing "
                                  f"else. Given: \"{part.type:.40}\"")
        texts.append(text)
    return "".join(texts)


def _read_call(call: ToolCall, where: str) -> dict[str, Any]:
    """Returns a call of a function; without an id if it has none, for templates would print it."""
    if call.function is None:
        raise ValidationError(f"`{where}` must have a `function`. Given: a call of type \"{call.type or '':.40}\"")
    arguments = call.function.arguments or {}
    try:
        read = orjson.loads(arguments) if isinstance(arguments, str) else arguments
    except orjson.JSONDecodeError:
        read = None
    if not isinstance(read, dict):
        raise ValidationError(f"`{where}.function.arguments` must be a JSON object")
    check_depth(read, f"{where}.function.arguments")
    name = {} if call.id is None else {"id": str(call.id)}
    return {**name, "type": "function", "function": {"name": call.function.name, "arguments": arguments}}


def check_depth(value: object, where: str) -> None:
    """Refuses values that are nested too deep for orjson, for slower writers of JSON would exhaust Python's stack on
    it."""
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise ValidationError(f"`{where}` is nested too deeply") from error
