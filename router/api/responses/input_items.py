"""From the items of a conversation to its messages, as chats have them: one conversation makes one prompt, by whichever
API it came."""

import base64
import binascii
from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from penstock.router.api.responses.bodies import Content, Item
from penstock.router.chat.messages import Message, check_depth
from penstock.router.errors import ValidationError

ROLES = ("user", "assistant", "system", "developer")
_CARRIED = "penstock-reasoning:"
"""How reasoning begins that a client carries for this kind of server."""
_TEXTS = ("input_text", "output_text", "text", "reasoning_text", "summary_text")
PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "function_call_output": "fco",
            "custom_tool_call": "ctc", "custom_tool_call_output": "ctco"}
"""The beginnings of ids, by the types of items."""
_TYPES = (*PREFIXES, "item_reference")


def carried(reasoning: str) -> str:
    """Returns reasoning in the form that clients carry. It is no secret: its clients get the same as text."""
    return _CARRIED + base64.b64encode(reasoning.encode()).decode()


def uncarried(text: str) -> str | None:
    """Returns the reasoning that a client has carried; None for what another kind of server has made."""
    if not text.startswith(_CARRIED):
        return None
    try:
        return base64.b64decode(text[len(_CARRIED):], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def messages_of(instructions: str | None, items: Iterable[tuple[str, Item]]) -> list[Message]:
    """Returns the messages of a conversation, whose items come with the name of the place where the client has written
    them. Where nobody says anything, the user says nothing. Raises ValidationError."""
    folding = _Folding()
    if instructions:
        folding.say("system", instructions)
    for where, item in items:
        folding.add(item, where)
    messages = folding.end()
    if all(message["role"] in ("system", "developer") for message in messages):
        messages.append({"role": "user", "content": ""})
    return [Message.model_validate(message) for message in messages]


def full_name(namespace: str | None, name: str) -> str:
    """Returns the name by which the model knows a tool, which may be in a namespace."""
    return name if namespace is None else f"{namespace}__{name}"


def is_reference(item: Item) -> bool:
    """Tells whether an item stands for another one, of a response that is kept."""
    return item.type == "item_reference" or (item.type is None and item.role is None and item.id is not None)


def kind_of(item: Item, where: str) -> str:
    """Returns the type of an item, which a message need not tell. Raises ValidationError."""
    kind = item.type or ("message" if item.role is not None else "item_reference" if is_reference(item) else None)
    if kind is None:
        raise ValidationError(f"`{where}` must have a `type`, or a `role`")
    if kind not in _TYPES:
        raise ValidationError(f"`{where}.type` must be one of {', '.join(_TYPES)}: this server runs no tools of its "
                              f"own, and takes nothing but text. Given: \"{kind:.40}\"")
    return kind


class _Folding:
    """Folds items into messages: all that the assistant says and calls up to what others say is one message of it."""

    def __init__(self) -> None:
        self._messages: list[dict[str, Any]] = []
        self._assistant: dict[str, Any] | None = None

    def end(self) -> list[dict[str, Any]]:
        """Returns the messages."""
        self._close()
        return self._messages

    def say(self, role: str, text: str) -> None:
        """Adds a message of somebody else than the assistant."""
        self._close()
        self._messages.append({"role": role, "content": text})

    def add(self, item: Item, where: str) -> None:
        """Adds an item. Raises ValidationError."""
        match kind_of(item, where):
            case "message":
                self._message(item, where)
            case "reasoning":
                self._think(_reasoning(item, where))
            case "function_call":
                if item.status != "incomplete":  # one that was cut off can't be written as a call
                    self._call(item, where, _arguments(item, where))
            case "custom_tool_call":
                if item.status != "incomplete":
                    self._call(item, where, {"input": _given(item.input, "input", where)})
            case "function_call_output" | "custom_tool_call_output":
                self._close()
                output, call_id = _text(item.output, "output", where), _given(item.call_id, "call_id", where)
                self._messages.append({"role": "tool", "tool_call_id": call_id, "content": output})
            case _:
                raise ValidationError(f"`{where}` refers to an item that this server does not keep")

    def _message(self, item: Item, where: str) -> None:
        role = _given(item.role, "role", where)
        if role not in ROLES:
            raise ValidationError(f"`{where}.role` must be one of {', '.join(ROLES)}. Given: \"{role:.40}\"")
        text = _text(item.content, "content", where)
        if role != "assistant":
            self.say(role, text)
            return
        if self._assistant is not None and "content" in self._assistant and "tool_calls" not in self._assistant:
            self._close()
        message = self._open()
        message["content"] = message.get("content", "") + text

    def _think(self, text: str | None) -> None:
        if text is None:
            return
        if self._assistant is not None and self._assistant.keys() & {"content", "tool_calls"}:
            self._close()
        message = self._open()
        message["reasoning_content"] = message.get("reasoning_content", "") + text

    def _call(self, item: Item, where: str, arguments: str | dict[str, Any]) -> None:
        call_id = _given(item.call_id, "call_id", where)
        name = full_name(item.namespace, _given(item.name, "name", where))
        self._open().setdefault("tool_calls", []).append(
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}})

    def _open(self) -> dict[str, Any]:
        if self._assistant is None:
            self._assistant = {"role": "assistant"}
        return self._assistant

    def _close(self) -> None:
        if self._assistant is not None:
            if "tool_calls" not in self._assistant:
                self._assistant.setdefault("content", "")
            self._messages.append(self._assistant)
            self._assistant = None


def text_of(content: Content, where: str) -> str:
    """Returns a content as a text. Raises ValidationError for parts that are none."""
    if isinstance(content, str):
        return content
    texts = []
    for number, part in enumerate(content):
        text = part.refusal if part.type == "refusal" else part.text if part.type in _TEXTS else None
        if text is None:
            raise ValidationError(f"`{where}[{number}]` must be of type input_text or output_text, with a text: this "
                                  f"model takes nothing else. Given: \"{part.type:.40}\"")
        texts.append(text)
    return "".join(texts)


def _given(value: str | None, name: str, where: str) -> str:
    if value is None:
        raise ValidationError(f"`{where}` must have the field `{name}`", "missing_required_parameter")
    return value


def _text(content: Content | None, name: str, where: str) -> str:
    return _given(None if content is None else text_of(content, f"{where}.{name}"), name, where)


def _arguments(item: Item, where: str) -> str:
    arguments = _given(item.arguments, "arguments", where)
    try:
        read = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        read = None
    if not isinstance(read, dict):
        raise ValidationError(f"`{where}.arguments` must be a JSON object, as a string")
    check_depth(read, f"{where}.arguments")
    return arguments


def _reasoning(item: Item, where: str) -> str | None:
    """Returns the text of reasoning; None if the item has none that can be read: a summary is the server's, and not
    what the model has thought."""
    if item.content:
        return text_of(item.content, f"{where}.content")
    return None if item.encrypted_content is None else uncarried(item.encrypted_content)


def own_items(body_input: str | Sequence[Item]) -> list[Item]:
    """Returns the items of an `input`: a text is a message of the user."""
    if isinstance(body_input, str):
        return [Item(role="user", content=body_input)] if body_input else []
    return list(body_input)
