"""Splits an answer of gpt-oss, in pieces of any size, into its parts. Pure.

Such an answer is messages in channels, each with a header: `<|channel|>analysis<|message|>` before thoughts, `final`
before the answer, and `commentary` before text or, with a recipient, before the arguments of a call.
"""

import re
from collections.abc import Callable, Iterator
from enum import Enum, auto

from penstock.router.chat.deltas import Arguments, CallBegin, CallEnd, Content, Delta, Thinking
from penstock.router.chat.harmony_format import HARMONY
from penstock.router.chat.tools.offer import Offer
from penstock.router.chat.tools.parser import reader_of
from penstock.router.chat.tools.pattern import MAX_HEADER
from penstock.router.chat.tools.readers import ObjectReader, Reader, State

_MESSAGE = "<|message|>"
_END = re.compile(r"<\|(?:end|call|return|start)\|>")
_MARK = re.compile(r"<(?:\|(?:\w{1,6}(?:\|)?)?)?\Z")
"""The beginning of a mark at the end of a text."""
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_FUNCTIONS = "functions."
_HEADERS = ("<|channel|>", "<|start|>", " to=", "to=")
"""How an answer may begin that has a header."""


class _Kind(Enum):
    """The kind of a message."""

    THINKING = auto()
    CONTENT = auto()
    CALL = auto()


class HarmonyParser:
    """Takes the pieces of one answer; the deltas, joined, depend on the text alone and not on how it was cut."""

    def __init__(self, offer: Offer | None = None, is_open: bool = False) -> None:
        """Takes the tools that may be called. `is_open` tells that the prompt has the header of the thinking."""
        self._tools = {tool.name: tool for tool in offer.tools} if offer is not None else {}
        self._text = ""
        """The text that is not decided yet."""
        self._kind: _Kind | None = _Kind.THINKING if is_open else None
        """The kind of the message that the text stands in; None in a header."""
        self._begun: set[_Kind] = set()
        """The kinds of messages that have had text."""
        self._is_first = True
        self._is_blank = True
        self._num_calls = 0
        self._reader: Reader = ObjectReader()
        self._arguments = ""
        """The text of a call's arguments that is not decided yet."""
        self._is_whole = False

    @property
    def is_thinking(self) -> bool:
        """Whether the next text is thought."""
        return self._kind is _Kind.THINKING

    @property
    def num_held(self) -> int:
        """How many of the text's last characters may be the beginning of a mark."""
        return len(self._text)

    def push(self, piece: str) -> list[Delta]:
        """Takes the next piece of the answer, and returns the deltas that it decides."""
        self._text += piece
        return list(self._advance())

    def finish(self) -> list[Delta]:
        """Takes the answer's end, and returns what was held back. A header that is not whole is dropped."""
        text, self._text = self._text, ""
        return [] if self._kind is None else [*self._given(text), *self._end_call()]

    def _advance(self) -> Iterator[Delta]:
        while self._text:
            if self._kind is None:
                name = self._read_header()
                if name is None:
                    return
                if self._kind is _Kind.CALL:
                    yield CallBegin(self._num_calls - 1, name)
                continue
            end = _END.search(self._text)
            if end is None:
                mark = _MARK.search(self._text, max(0, len(self._text) - 10))
                at = len(self._text) if mark is None else mark.start()
                text, self._text = self._text[:at], self._text[at:]
                yield from self._given(text)
                return
            text, self._text = self._text[:end.start()], self._text[end.end():]
            yield from self._given(text)
            yield from self._end_call()
            self._kind = None

    def _read_header(self) -> str | None:
        """Reads a header, or finds that the answer has none, or one that is too long. Returns the name of the function
        that is called, if one is; None if the header is not whole yet."""
        header, is_whole, rest = self._text.partition(_MESSAGE)
        may_be_one = not self._is_first or bool(is_whole) or any(
            each.startswith(header[:len(each)]) for each in _HEADERS)
        if may_be_one and not is_whole and len(header) < MAX_HEADER:
            return None
        self._is_first, self._is_blank = False, True
        if not is_whole:
            self._kind = _Kind.CONTENT
            return ""
        self._text = rest
        return self._begin(header)

    def _begin(self, header: str) -> str:
        """Begins the message behind a header; returns the name of the function that is called, if one is."""
        channel, recipient = _CHANNEL.search(header), _RECIPIENT.search(header)
        self._kind = _Kind.THINKING if channel is not None and channel[1] == "analysis" else _Kind.CONTENT
        if recipient is None or recipient[1] == "assistant":
            return ""
        name = recipient[1].removeprefix(_FUNCTIONS)
        if not self._tools or (not recipient[1].startswith(_FUNCTIONS) and name not in self._tools):
            self._kind = _Kind.THINKING  # a call of a tool that nobody has offered, or of the model's own
            return ""
        self._kind = _Kind.CALL
        self._num_calls += 1
        self._reader, self._arguments, self._is_whole = reader_of(HARMONY, self._tools.get(name)), "", False
        return name

    def _given(self, text: str) -> Iterator[Delta]:
        """Yields a part of the message, behind an empty line where another of its kind came before."""
        kind = self._kind
        if not text or kind is None:
            return
        if kind is _Kind.CALL:
            yield from self._called(text)
            return
        delta: Callable[[str], Delta] = Thinking if kind is _Kind.THINKING else Content
        yield delta("\n\n" + text if self._is_blank and kind in self._begun else text)
        self._is_blank = False
        self._begun.add(kind)

    def _called(self, text: str) -> Iterator[Delta]:
        """Yields a part of a call's arguments; what stands behind them is dropped."""
        self._arguments += text
        while self._arguments and not self._is_whole:
            read = self._reader.read(self._arguments)
            self._arguments = self._arguments[read.used:]
            if read.text:
                yield Arguments(self._num_calls - 1, read.text)
            self._is_whole = read.state is not State.WITHIN
            if read.state is State.WHOLE:
                yield CallEnd(self._num_calls - 1)
            if not read.used:
                return

    def _end_call(self) -> Iterator[Delta]:
        """Yields the rest of a call that ended within its arguments."""
        if self._kind is _Kind.CALL and not self._is_whole:
            read = self._reader.finish(self._arguments)
            if read.text:
                yield Arguments(self._num_calls - 1, read.text)
