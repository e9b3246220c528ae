"""Splits an answer's text, in pieces of any size, into content and calls of tools. Pure. Text that is no call in the
format is content, as it is. A call is given as soon as its arguments begin, and these as they come, even if the answer
ends within them."""

from collections.abc import Iterable, Iterator
from enum import Enum, auto

from penstock.router.chat.deltas import Arguments, CallBegin, CallEnd, Content, Delta
from penstock.router.chat.marks import held_back
from penstock.router.chat.tools.call_format import CallFormat, Keywords, Tagged
from penstock.router.chat.tools.literals import KeywordsReader
from penstock.router.chat.tools.offer import Offer, Tool
from penstock.router.chat.tools.pattern import MAX_HEADER, Match, NoMatch, match, match_within
from penstock.router.chat.tools.readers import InputReader, ObjectReader, RawReader, Read, Reader, State
from penstock.router.chat.tools.tagged import TaggedReader

MAX_BLANKS = 64
"""The most characters of white space before a call that are dropped; what comes before them is content."""


class _Place(Enum):
    """Where in the answer the undecided text begins."""

    TEXT = auto()
    """Calls may come."""
    ARGUMENTS = auto()
    CLOSE = auto()
    """After a call's arguments."""
    BETWEEN = auto()
    """After a whole call."""
    ONLY_TEXT = auto()
    """No call can come any more."""


class CallParser:
    """Takes the pieces of one answer; the deltas, joined, depend on the text alone and not on how it was cut."""

    def __init__(self, call_format: CallFormat, offer: Offer | None = None) -> None:
        """Takes the tools that may be called, whose schemas tell the types of values that stand as text."""
        self._format = call_format
        self._tools = {tool.name: tool for tool in offer.tools} if offer is not None else {}
        self._place = _Place.TEXT
        self._text = call_format.opened
        """The text that is not decided yet."""
        self._num_opened = len(call_format.opened)
        """How many of its first characters are no part of the answer, but of the prompt."""
        self._reader: Reader = ObjectReader()
        self._steps = {_Place.TEXT: self._in_text, _Place.ARGUMENTS: self._in_arguments, _Place.CLOSE: self._in_close,
                       _Place.BETWEEN: self._between, _Place.ONLY_TEXT: self._in_only_text}
        self._marker_begin = call_format.marker[:1]
        self.num_calls = 0

    def push(self, piece: str) -> list[Delta]:
        """Takes the next piece of the answer, and returns the deltas that it decides."""
        if self._is_content(piece):
            return [Content(piece)]
        self._text += piece
        return list(self._advance())

    def _is_content(self, piece: str) -> bool:
        """Tells whether a piece is all content, as most are. `_in_text` finds that, too, but takes long."""
        return (self._place is _Place.TEXT and not self._text and self._marker_begin not in piece
                and piece[-1:].strip() != "" and bool(self._marker_begin))

    def finish(self) -> list[Delta]:
        """Takes the answer's end, and returns what was held back. White space after a call is dropped."""
        if self._place is _Place.ARGUMENTS:
            return list(self._given(self._reader.finish(self._text)))
        if self._place is _Place.BETWEEN:
            self._take(max((end.end for end in self._whole_ends()), default=0))
        rest, self._text = self._text[self._num_opened:], ""
        is_dropped = self._place is _Place.CLOSE or (self.num_calls and not rest.strip())
        return [] if is_dropped or not rest else [Content(rest)]

    def _advance(self) -> Iterator[Delta]:
        """Yields deltas until nothing more is decided."""
        while self._text:
            before = self._place, len(self._text)
            yield from self._steps[self._place]()
            if before == (self._place, len(self._text)):
                return

    def _in_text(self) -> Iterator[Delta]:
        """Yields content up to where a call may begin; then the first call, or more content if it is none."""
        at = self._next_marker()
        start = at - min(MAX_BLANKS, at - len(self._text[:at].rstrip()))
        if start:
            yield from self._content(start)
            at -= start
        if at == len(self._text):
            return
        prose = self._format.prose
        if prose and self._text.startswith(prose, at):
            yield from self._content(at)
            self._take(len(prose))
            self._num_opened = 0
            return
        is_open = prose.startswith(self._text[at:])
        found = NoMatch.NOT_YET if is_open else self._call(self._format.firsts, at)
        if isinstance(found, Match):
            yield self._begin_call(found)
        elif found is NoMatch.NEVER and self._format.marker:
            yield from self._content(at + 1)
        elif found is NoMatch.NEVER:
            self._place = _Place.ONLY_TEXT

    def _next_marker(self) -> int:
        """Returns where the marker, or as much of it as there is, begins; the length of the text if it is nowhere."""
        at = self._text.find(self._format.marker)
        return at if at >= 0 else len(self._text) - held_back(self._text, self._format.marker)

    def _in_arguments(self) -> Iterator[Delta]:
        yield from self._given(self._reader.read(self._text))

    def _given(self, read: Read) -> Iterator[Delta]:
        """Yields the progress of a reader as deltas."""
        self._take(read.used)
        if read.text:
            yield Arguments(self.num_calls - 1, read.text)
        if read.state is State.WHOLE:
            yield CallEnd(self.num_calls - 1)
            self._place = _Place.CLOSE
        elif read.state is State.BROKEN:
            self._place = self._after_calls()

    def _in_close(self) -> Iterator[Delta]:
        found = self._try(self._format.closes)
        if found is not NoMatch.NOT_YET:
            self._place = _Place.BETWEEN
        if isinstance(found, Match) and self._format.close:
            self._take(found.end)
        return iter(())

    def _between(self) -> Iterator[Delta]:
        """Yields the next call, or finds the end of all calls, after which there may be content."""
        found = self._call(self._format.nexts)
        if isinstance(found, Match):
            yield self._begin_call(found)
        elif found is NoMatch.NEVER:
            end = self._try(self._format.ends)
            if isinstance(end, Match):
                self._take(end.end)
            if end is not NoMatch.NOT_YET:
                self._place = self._after_calls()

    def _whole_ends(self) -> Iterator[Match]:
        found = (match(end, self._text) for end in self._format.ends)
        return (end for end in found if isinstance(end, Match))

    def _after_calls(self) -> _Place:
        return _Place.TEXT if self._format.marker else _Place.ONLY_TEXT

    def _in_only_text(self) -> Iterator[Delta]:
        yield from self._content(len(self._text))

    def _content(self, end: int) -> Iterator[Delta]:
        """Yields the text up to a place, without what the prompt had of it."""
        text = self._take(end)[self._num_opened:]
        self._num_opened = max(0, self._num_opened - end)
        if text:
            yield Content(text)

    def _take(self, end: int) -> str:
        """Removes and returns the decided text."""
        taken, self._text = self._text[:end], self._text[end:]
        return taken

    def _call(self, patterns: Iterable[str], at: int = 0) -> Match | NoMatch:
        """Looks for the beginning of a call. One with raw text is of a custom tool."""
        found = self._try(patterns, at)
        if isinstance(found, Match) and found.end == found.here and self._format.raw_close is not None:
            tool = self._tools.get(found.name)
            return found if tool is not None and tool.is_custom else NoMatch.NEVER
        return found

    def _try(self, patterns: Iterable[str], at: int = 0) -> Match | NoMatch:
        return match_within(MAX_HEADER, patterns, self._text, at)

    def _begin_call(self, found: Match) -> CallBegin:
        """Returns the beginning of a call, whose arguments stay undecided."""
        self._take(found.here)
        self._num_opened = 0
        self._place = _Place.ARGUMENTS
        self._reader = reader_of(self._format, self._tools.get(found.name))
        self.num_calls += 1
        return CallBegin(self.num_calls - 1, found.name, found.id)


def reader_of(call_format: CallFormat, tool: Tool | None) -> Reader:
    """Returns a reader of the arguments of one call; the tool is None if it was not offered."""
    reader: Reader
    match call_format.arguments:
        case Tagged() as tagged:
            reader = TaggedReader(tagged, call_format.close_marks, {} if tool is None else tool.parameters)
        case Keywords():
            reader = KeywordsReader()
        case None:
            reader = ObjectReader()
    if tool is None or not tool.is_custom:
        return reader
    if call_format.raw_close is None:
        return InputReader(reader, None)
    header = call_format.header
    return InputReader(reader, RawReader(header[len(header.rstrip()):], call_format.raw_close))
