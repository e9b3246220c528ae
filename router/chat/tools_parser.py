"""Splits an answer's text, in pieces of any size, into content and calls of tools. Pure. Text that is no call in the
format is content, as it is. A call is given as soon as its arguments begin, and these as the model wrote them, even if
the answer ends within them."""

from collections.abc import Iterator
from enum import Enum, auto

from penstock.router.chat.deltas import Arguments, CallBegin, CallEnd, Content, Delta
from penstock.router.chat.tools_format import CallFormat
from penstock.router.chat.tools_pattern import Match, NoMatch, match

MAX_HEADER = 1024
"""The most characters from where a call may begin to its arguments; what is longer is content."""
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

    def __init__(self, call_format: CallFormat) -> None:
        self._format = call_format
        self._place = _Place.TEXT
        self._text = ""
        """The text that is not decided yet."""
        self._braces = _Braces()
        self.num_calls = 0

    def push(self, piece: str) -> list[Delta]:
        """Takes the next piece of the answer, and returns the deltas that it decides."""
        self._text += piece
        return list(self._advance())

    def finish(self) -> list[Delta]:
        """Takes the answer's end, and returns what was held back. White space after a call is dropped."""
        rest, self._text = self._text, ""
        is_dropped = self._place is _Place.CLOSE or (self.num_calls and not rest.strip())
        return [] if is_dropped or not rest else [Content(rest)]

    def _advance(self) -> Iterator[Delta]:
        """Yields deltas until nothing more is decided."""
        steps = {_Place.TEXT: self._in_text, _Place.ARGUMENTS: self._in_arguments, _Place.CLOSE: self._in_close,
                 _Place.BETWEEN: self._between, _Place.ONLY_TEXT: self._in_only_text}
        while self._text:
            before = self._place, len(self._text)
            yield from steps[self._place]()
            if before == (self._place, len(self._text)):
                return

    def _in_text(self) -> Iterator[Delta]:
        """Yields content up to where a call may begin; then the first call, or more content if it is none."""
        at = self._next_marker()
        start = at - min(MAX_BLANKS, at - len(self._text[:at].rstrip()))
        if start:
            yield Content(self._take(start))
            at -= start
        if at == len(self._text):
            return
        found = self._try(self._format.begin + self._format.header, at)
        if isinstance(found, Match):
            yield self._begin_call(found)
        elif found is NoMatch.NEVER and self._format.marker:
            yield Content(self._take(at + 1))
        elif found is NoMatch.NEVER:
            self._place = _Place.ONLY_TEXT

    def _next_marker(self) -> int:
        """Returns where the marker, or as much of it as there is, begins; the length of the text if it is nowhere."""
        text, marker = self._text, self._format.marker
        at = text.find(marker)
        if at >= 0:
            return at
        sizes = range(min(len(marker) - 1, len(text)), 0, -1)
        return len(text) - next((size for size in sizes if text.endswith(marker[:size])), 0)

    def _in_arguments(self) -> Iterator[Delta]:
        end, index = self._braces.end(self._text), self.num_calls - 1
        yield Arguments(index, self._take(end))
        if end is not None:
            self._place = _Place.CLOSE
            yield CallEnd(index)

    def _in_close(self) -> Iterator[Delta]:
        found = self._try(self._format.close)
        if found is not NoMatch.NOT_YET:
            self._place = _Place.BETWEEN
        if isinstance(found, Match):
            self._take(found.end)
        return iter(())

    def _between(self) -> Iterator[Delta]:
        """Yields the next call, or finds the end of all calls, after which there may be content."""
        found = self._try(self._format.separator + self._format.header)
        if isinstance(found, Match):
            yield self._begin_call(found)
        elif found is NoMatch.NEVER:
            end = match(self._format.end, self._text)
            if self._format.end and isinstance(end, Match):
                self._take(end.end)
            self._place = _Place.TEXT if self._format.marker else _Place.ONLY_TEXT

    def _in_only_text(self) -> Iterator[Delta]:
        yield Content(self._take(None))

    def _take(self, end: int | None) -> str:
        """Removes and returns the decided text."""
        end = len(self._text) if end is None else end
        taken, self._text = self._text[:end], self._text[end:]
        return taken

    def _try(self, pattern: str, at: int = 0) -> Match | NoMatch:
        """Matches a pattern; what does not match within the length of a header never does, however the text was cut."""
        text = self._text[:at + MAX_HEADER]
        found = match(pattern, text, at)
        return NoMatch.NEVER if found is NoMatch.NOT_YET and len(text) == at + MAX_HEADER else found

    def _begin_call(self, found: Match) -> CallBegin:
        """Returns the beginning of a call; the arguments' first character, with which the match ends, stays
        undecided."""
        self._take(found.end - 1)
        self._place = _Place.ARGUMENTS
        self._braces = _Braces()
        self.num_calls += 1
        return CallBegin(self.num_calls - 1, found.name)


class _Braces:
    """Looks for the end of a JSON object that comes in pieces."""

    def __init__(self) -> None:
        self._depth = 0
        self._is_string = False
        self._is_escaped = False

    def end(self, piece: str) -> int | None:
        """Returns where in the piece the object ends; None if it goes on."""
        for position, character in enumerate(piece):
            if self._is_escaped:
                self._is_escaped = False
            elif self._is_string:
                self._is_escaped = character == "\\"
                self._is_string = character != '"'
            elif character == '"':
                self._is_string = True
            elif character in "{}":
                self._depth += 1 if character == "{" else -1
                if not self._depth:
                    return position + 1
        return None
