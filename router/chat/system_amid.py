"""Messages of the system amid a conversation, as agents send them. Many templates refuse them, drop them, or move them
to the front, where they would change the beginning of the prompt. With those their text is a part of the user's turn.
Pure."""

from collections.abc import Collection, Sequence
from typing import Any

Message = dict[str, Any]

ROLES = frozenset({"system", "developer"})
"""The roles of such messages."""
_WORDS = [f"TEXT_{number}_STANDS_HERE" for number in range(5)]


def roles_amid(messages: Sequence[Message]) -> set[str]:
    """Returns the roles of the system's messages that stand behind others."""
    is_amid, found = False, set()
    for message in messages:
        if message["role"] not in ROLES:
            is_amid = True
        elif is_amid:
            found.add(message["role"])
    return found


def probe(role: str) -> list[Message]:
    """Returns a conversation with a message of this role amid it, by which `keeps_places` looks at a template."""
    roles = ("system", "user", role, "assistant", "user")
    return [{"role": each, "content": word} for each, word in zip(roles, _WORDS, strict=True)]


def keeps_places(prompt: str) -> bool:
    """Tells whether the prompt of the probe has all its texts, in their order."""
    places = [prompt.rfind(word) for word in _WORDS]
    return -1 not in places and places == sorted(places)


def folded(messages: Sequence[Message], roles: Collection[str]) -> list[Message]:
    """Returns the messages with those amid them that have one of the roles as parts of the user's turn before them, or
    behind them, or as turns of their own, marked as the system's."""
    made: list[Message] = []
    is_amid = is_begun = False
    for message in messages:
        is_amid = is_amid or message["role"] not in ROLES
        if is_amid and message["role"] in roles:
            text = f"<system>\n{message.get('content', '')}\n</system>"
            if made[-1]["role"] == "user":
                made[-1] = _joined(made[-1], text)
            else:
                made.append({"role": "user", "content": text})
                is_begun = True
        elif is_begun and message["role"] == "user":
            made[-1] = _joined(made[-1], message["content"])
            is_begun = False
        else:
            made.append(message)
            is_begun = False
    return made


def _joined(message: Message, text: str) -> Message:
    return {**message, "content": f"{message['content']}\n\n{text}"}
