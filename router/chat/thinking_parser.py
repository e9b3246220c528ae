"""Splits an answer's text, in pieces of any size, into what the model thinks and what it answers. Pure.

White space around the marks is dropped, as templates do when they write an answer. An answer may end within its
thinking. Thoughts that are opened within an answer are text.
"""

from collections.abc import Iterator
from enum import Enum, auto

from penstock.router.chat.deltas import AnswerParser, Delta, Thinking
from penstock.router.chat.marks import held_back
from penstock.router.chat.thinking_format import ThinkingFormat

_MOST_BLANKS = 64
"""How many characters of white space may come before the opening mark."""


class TextUntil:
    """Takes text up to a mark in pieces of any size; white space at both ends of the text is dropped."""

    def __init__(self, mark: str) -> None:
        self.held = ""
        """The beginning of the mark, as far as it has come."""
        self._mark = mark
        self._blanks: list[str] = []
        """The white space that comes next, if text follows."""
        self._has_text = False

    def push(self, piece: str) -> tuple[str, str | None]:
        """Returns the text that is decided, and the rest of the piece behind the mark; None if that has not come."""
        if not self.held and self._mark[0] not in piece:
            return self._text(piece), None
        text = self.held + piece
        before, mark, rest = text.partition(self._mark)
        self.held = "" if mark else text[len(text) - held_back(text, self._mark):]
        return self._text(before if mark else text[:len(text) - len(self.held)]), rest if mark else None

    def finish(self) -> str:
        """Returns the text that is left where the mark does not come."""
        text, self.held = self._text(self.held), ""
        return text

    def _text(self, text: str) -> str:
        """Returns the text without white space at its end, behind the white space that was before it."""
        known = text.rstrip()
        if not known:
            if text:
                self._blanks.append(text)
            return ""
        before = "".join(self._blanks) if self._has_text else ""
        self._blanks = [text[len(known):]]
        known = known if self._has_text else known.lstrip()
        self._has_text = True
        return before + known


class _Place(Enum):
    """Where in the answer the next text stands."""

    BEFORE = auto()
    THINKING = auto()
    BEHIND = auto()
    """Directly behind the thinking, where white space and the texts around an answer may come."""
    WRAPPED = auto()
    ANSWER = auto()


class ThinkingParser:
    """Takes the pieces of one answer; `answer` parses the rest of it, behind the thinking. The deltas, joined, depend
    on the text alone and not on how it was cut."""

    def __init__(self, form: ThinkingFormat, is_open: bool, answer: AnswerParser) -> None:
        """`is_open` tells that the prompt has the opening mark."""
        self._form = form
        self._answer = answer
        self._place = _Place.THINKING if is_open else _Place.BEFORE
        self._held = ""
        self._until = TextUntil(form.end)

    @property
    def is_thinking(self) -> bool:
        """Whether the next text is thought."""
        return self._place is _Place.THINKING

    @property
    def num_held(self) -> int:
        """How many of the text's last characters may be the beginning of a mark."""
        return len(self._until.held)

    def push(self, piece: str) -> list[Delta]:
        """Takes the next piece of the answer, and returns the deltas that it decides."""
        return self._answer.push(piece) if self._place is _Place.ANSWER else list(self._read(piece))

    def finish(self) -> list[Delta]:
        """Takes the answer's end, and returns what was held back."""
        deltas: list[Delta] = []
        match self._place:
            case _Place.BEFORE | _Place.BEHIND if self._held:
                deltas = self._answer.push(self._held)
            case _Place.THINKING if text := self._until.finish():
                deltas = [Thinking(text)]
            case _Place.WRAPPED if text := self._until.finish():
                deltas = self._answer.push(text)
        return deltas + self._answer.finish()

    def _read(self, piece: str) -> Iterator[Delta]:
        """Yields deltas, from the place where the piece begins to that where it ends."""
        if self._place is _Place.BEFORE:
            piece = self._find_begin(piece)
        if self._place is _Place.THINKING:
            text, rest = self._until.push(piece)
            if text:
                yield Thinking(text)
            if rest is None:
                return
            self._place, piece = _Place.BEHIND, rest
        if self._place is _Place.BEHIND:
            piece = self._find_answer(piece)
        if self._place is _Place.WRAPPED:
            text, rest = self._until.push(piece)
            yield from self._answer.push(text)
            if rest is None:
                return
            self._place, piece = _Place.ANSWER, rest
        if self._place is _Place.ANSWER and piece:
            yield from self._answer.push(piece)

    def _find_begin(self, piece: str) -> str:
        """Looks for the opening mark, or the closing one of a model that does not think; returns the text behind it, or
        all text if there is none."""
        self._held += piece
        text, marks = self._held.lstrip(), (self._form.begin, self._form.end)
        is_short = len(self._held) - len(text) < _MOST_BLANKS
        if is_short and any(mark != text and mark.startswith(text) for mark in marks):
            return ""
        held, self._held = self._held, ""
        for mark, place in zip(marks, (_Place.THINKING, _Place.BEHIND), strict=True):
            if text.startswith(mark):
                self._place = place
                return text[len(mark):]
        self._place = _Place.ANSWER
        return held

    def _find_answer(self, piece: str) -> str:
        """Looks for where the answer begins; returns the text from there on."""
        text = (self._held + piece).lstrip()
        self._held = ""
        for begin, end in self._form.wraps:
            if text.startswith(begin):
                self._place, self._until = _Place.WRAPPED, TextUntil(end)
                return text[len(begin):]
            if begin.startswith(text):
                self._held = text
                return ""
        if text:
            self._place = _Place.ANSWER
        return text
