"""From Anthropic's messages and blocks to the messages of a chat, of which the same prompt is made as of OpenAI's."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeVar

from penstock.router.api.anthropic.bodies import Block, CountBody, Message, Part
from penstock.router.api.anthropic.signatures import carried
from penstock.router.chat import messages as chat
from penstock.router.chat.messages import CalledFunction, ToolCall, check_depth
from penstock.router.errors import ValidationError

_Value = TypeVar("_Value")

BILLING = "x-anthropic-billing-header:"
"""Begins a line before the system prompt of Claude Code that differs from request to request, so that no prefix of the
prompt would be found in the cache."""
_BETWEEN = "\n\n"
"""Stands between the texts of messages that are one turn."""


def chat_messages(body: CountBody) -> list[chat.Message]:
    """Returns the conversation of a body: the system prompt first, messages in a row of one role as one, results of
    tools each as one. ValidationError names the block that is wrong or not served."""
    system = _system_text(body.system) if body.system else ""
    made = [chat.Message(role="system", content=system)] if system else []
    numbered = enumerate(body.messages)
    for role, turn in groupby(numbered, key=lambda pair: pair[1].role):
        made += _READERS[role](list(turn))
    return made


def referred_tools(messages: Sequence[Message]) -> set[str]:
    """Returns the names of the tools that results of tools refer to, which are to be told of from now on."""
    return {part.tool_name for message in messages if isinstance(message.content, list)
            for block in message.content if isinstance(block.content, list)
            for part in block.content if part.type == "tool_reference" and part.tool_name is not None}


_Turn = list[tuple[int, Message]]
"""Messages in a row of one role, each with its number."""


@dataclass(slots=True)
class _Texts:
    """Joins the texts of a turn: those of one message as they are, those of several with a blank line between."""

    texts: list[str] = field(default_factory=list)
    number: int = 0

    def add(self, number: int, text: str) -> None:
        """Adds a text of the message of this number."""
        if text:
            self.texts += [_BETWEEN, text] if self.texts and number != self.number else [text]
            self.number = number

    def take(self) -> str:
        """Returns the joined text, and begins anew."""
        joined, self.texts = "".join(self.texts), []
        return joined


def _system_text(system: str | list[Block]) -> str:
    blocks = [Block(type="text", text=system)] if isinstance(system, str) else system
    texts = (_text(block, f"system[{index}]", ("text",)) for index, block in enumerate(blocks))
    return "".join(text.partition("\n")[2] if text.startswith(BILLING) else text for text in texts)


def _system(turn: _Turn) -> Iterator[chat.Message]:
    """Yields each message of the system amid a conversation."""
    for _, where, blocks in _contents(turn):
        texts = [_text(block, f"{where}[{index}]", ("text",)) for index, block in enumerate(blocks)]
        yield chat.Message(role="system", content="".join(texts))


def _user(turn: _Turn) -> Iterator[chat.Message]:
    """Yields the user's turn: results of tools, and texts, in their order."""
    texts, is_empty = _Texts(), True
    for number, where, blocks in _contents(turn):
        for index, block in enumerate(blocks):
            if block.type != "tool_result":
                texts.add(number, _text(block, f"{where}[{index}]", ("text", "tool_result")))
                continue
            if text := texts.take():
                yield chat.Message(role="user", content=text)
            is_empty = False
            yield _result(block, f"{where}[{index}]")
    if (text := texts.take()) or is_empty:
        yield chat.Message(role="user", content=text)


def _result(block: Block, where: str) -> chat.Message:
    """Returns the result of a tool. That it is an error is told by its text, for templates have no other place."""
    text = block.content or ""
    if not isinstance(text, str):
        text = "".join(_part(part, f"{where}.content[{index}]") for index, part in enumerate(text))
    if block.is_error and not text.lower().startswith("error"):
        text = f"Error: {text}"
    tool_use_id = _given(block.tool_use_id, "tool_use_id", where)
    return chat.Message.model_validate({"role": "tool", "content": text, "tool_call_id": tool_use_id})


def _part(part: Part, where: str) -> str:
    if part.type == "tool_reference":
        return f"The tool {_given(part.tool_name, 'tool_name', where)} can be called now.\n"
    return _text(part, where, ("text", "tool_reference"))


def _assistant(turn: _Turn) -> Iterator[chat.Message]:
    """Yields one message of all thoughts, texts and calls of the assistant's turn."""
    texts, thoughts, calls = _Texts(), _Texts(), []
    for number, where, blocks in _contents(turn):
        for index, block in enumerate(blocks):
            place = f"{where}[{index}]"
            match block.type:
                case "thinking":
                    thoughts.add(index, block.thinking or carried(block.signature or ""))
                case "redacted_thinking":
                    pass  # which only the server that made it can read
                case "tool_use":
                    calls.append(_call(block, place))
                case _:
                    texts.add(number, _text(block, place, ("text", "thinking", "redacted_thinking", "tool_use")))
    text, reasoning = texts.take(), thoughts.take()
    yield chat.Message.model_validate({
        "role": "assistant", "content": text or (None if calls else ""), "tool_calls": calls or None,
        **({"reasoning_content": reasoning} if reasoning else {})})


def _call(block: Block, where: str) -> ToolCall:
    arguments = _given(block.input, "input", where)
    check_depth(arguments, f"{where}.input")
    function = CalledFunction(name=_given(block.name, "name", where), arguments=arguments)
    return ToolCall(id=_given(block.id, "id", where), type="function", function=function)


def _contents(turn: _Turn) -> Iterator[tuple[int, str, list[Block]]]:
    """Yields the number of each message, where its content is, and the blocks of that."""
    for number, message in turn:
        content = message.content
        blocks = [Block(type="text", text=content)] if isinstance(content, str) else content
        yield number, f"messages[{number}].content", blocks


def _text(part: Part, where: str, types: Sequence[str]) -> str:
    """Returns the text of a block of text. ValidationError, which lists the types that are served, if it is none."""
    if part.type != "text":
        raise ValidationError(f"`{where}` must be of type {' or '.join(types)}, this model takes nothing else. "
                              f"Given: \"{part.type:.40}\"")
    return _given(part.text, "text", where)


def _given(value: _Value | None, name: str, where: str) -> _Value:
    if value is None:
        raise ValidationError(f"`{where}` must have `{name}`")
    return value


_READERS: dict[str, Callable[[_Turn], Iterator[chat.Message]]] = {
    "system": _system, "user": _user, "assistant": _assistant}
