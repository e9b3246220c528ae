"""Messages of the system, at the head of a conversation and amid it, as agents send them. Many templates refuse those
amid it, drop them, or move them to the front, where they would change the beginning of the prompt; some know no system
at all. With those their text is a part of the user's turn. Pure."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

Message = dict[str, Any]

ROLES = frozenset({"system", "developer"})
"""The roles of such messages."""
_WORDS = [f"TEXT_{number}_STANDS_HERE" for number in range(5)]


class Kind(NamedTuple):
    """A kind of the system's messages, by which templates differ."""

    role: str
    is_amid: bool


def kinds(messages: Sequence[Message]) -> list[Kind | None]:
    """Returns the kind of each message; None for those that are not the system's."""
    found: list[Kind | None] = []
    is_amid = False
    for message in messages:
        is_amid = is_amid or message["role"] not in ROLES
        found.append(Kind(message["role"], is_amid) if message["role"] in ROLES else None)
    return found


def probe(kind: Kind) -> list[Message]:
    """Returns a conversation with a message of this kind, by which `keeps_places` looks at a template."""
    roles = ("user", kind.role, "assistant", "user") if kind.is_amid else (kind.role, "user", "assistant", "user")
    return [{"role": each, "content": word} for each, word in zip(roles, _WORDS, strict=False)]


def keeps_places(kind: Kind, prompt: str) -> bool:
    """Tells whether the prompt of the probe has all its texts, in their order. That at the head may stand elsewhere, as
    some models want it beside the last question."""
    places = [prompt.rfind(word) for word in _WORDS[:4]]
    return -1 not in places and (not kind.is_amid or places == sorted(places))


def folded(messages: Sequence[Message], lost: Collection[Kind]) -> list[Message]:
    """Returns the messages with those of the kinds that would be lost as parts of the user's turn before them, or
    behind them, or as turns of their own. Those amid the conversation are marked as the system's."""
    made: list[Message] = []
    is_begun = False
    for message, kind in zip(messages, kinds(messages), strict=True):
        text = message.get("content", "")
        if kind is not None and kind in lost:
            text = f"<system>\n{text}\n</system>" if kind.is_amid else text
            _say(made, text)
            is_begun = True
        elif is_begun and message["role"] == "user":
            _say(made, text)
            is_begun = False
        else:
            made.append(message)
            is_begun = False
    return made


def _say(made: list[Message], text: str) -> None:
    """Adds a text to the user's turn that stands last, or as a turn."""
    if made and made[-1]["role"] == "user":
        made[-1] = {**made[-1], "content": f"{made[-1]['content']}\n\n{text}"}
    else:
        made.append({"role": "user", "content": text})
