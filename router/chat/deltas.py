"""The parts of an answer to a conversation, in the order in which they come, by whichever API they are told."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Content:
    """Text of the answer that belongs to no call."""

    text: str


@dataclass(frozen=True, slots=True)
class Thinking:
    """Text in which the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegin:
    """The beginning of a call, which has a number in the answer; `id` is the one that the model has written itself."""

    index: int
    name: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Arguments:
    """A piece of a call's arguments, which are the JSON of an object."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The end of a call that is whole; an answer may end within one."""

    index: int


Delta = Content | Thinking | CallBegin | Arguments | CallEnd


class AnswerParser(Protocol):
    """Splits an answer's text, in pieces of any size, into its parts."""

    def push(self, piece: str) -> list[Delta]:
        """Takes the next piece of the answer, and returns the deltas that it decides."""

    def finish(self) -> list[Delta]:
        """Takes the answer's end, and returns what was held back."""
