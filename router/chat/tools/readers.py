"""Reads the arguments of one call, in pieces of any size, as the JSON of an object or as raw text. Pure."""

import json
import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from penstock.router.chat.marks import held_back
from penstock.router.chat.tools.pattern import MAX_HEADER, Match, NoMatch, match_within


class State(Enum):
    """Where a reader is in its arguments."""

    WITHIN = auto()
    WHOLE = auto()
    BROKEN = auto()
    """Nothing that follows can be a part of the arguments."""


@dataclass(frozen=True, slots=True)
class Read:
    """A reader's progress: how many characters are decided, and the arguments that they are."""

    used: int
    text: str = ""
    state: State = State.WITHIN


class Reader(Protocol):
    """Reads the arguments of one call."""

    def read(self, text: str) -> Read:
        """Takes the text that is not decided yet, with what has come since."""

    def finish(self, text: str) -> Read:
        """Takes the rest of an answer that ended within the arguments."""


class ObjectReader:
    """Reads a JSON object, which is given as it is."""

    _MARKS = re.compile(r'["{}]')
    _IN_STRING = re.compile(r'["\\]')

    def __init__(self) -> None:
        self._depth = 0
        self._is_string = False
        self._is_escaped = False

    def read(self, text: str) -> Read:
        if not self._depth:
            blanks = len(text) - len(text.lstrip())
            if blanks:
                return Read(blanks)
        end = self._end(text)
        return Read(len(text), text) if end is None else Read(end, text[:end], State.WHOLE)

    def finish(self, text: str) -> Read:
        return Read(len(text), text)

    def _end(self, text: str) -> int | None:
        """Returns where in the text the object ends; None if it goes on."""
        place = int(self._is_escaped)
        self._is_escaped = self._is_escaped and not text
        while found := (self._IN_STRING if self._is_string else self._MARKS).search(text, place):
            place = found.end()
            character = found[0]
            if character == '"':
                self._is_string = not self._is_string
            elif character == "\\":
                self._is_escaped = place == len(text)
                place += 1
            else:
                self._depth += 1 if character == "{" else -1
                if not self._depth:
                    return place
        return None


class Quotes:
    """Follows a value in pieces, and tells whether it is within a string of a JSON array or object."""

    _MARKS = re.compile(r'"|\\.?', re.DOTALL)

    def __init__(self) -> None:
        self.is_open = False
        self._is_json: bool | None = None
        self._is_escaped = False

    def push(self, piece: str) -> None:
        if self._is_json is None and (begin := piece.lstrip()[:1]):
            self._is_json = begin in "[{"
        if not self._is_json or not piece:
            return
        start, self._is_escaped = int(self._is_escaped), False
        for mark in self._MARKS.finditer(piece, start):
            if mark[0] == '"':
                self.is_open = not self.is_open
            self._is_escaped = mark[0] == "\\"


class RawReader:
    """Reads a text of any form behind the white space `lead` and up to the text `close`, which it leaves."""

    def __init__(self, lead: str, close: str) -> None:
        self._lead = lead
        self._close = close

    def read(self, text: str) -> Read:
        if self._lead and text:
            lead, self._lead = self._lead, ""
            if text.startswith(lead):
                return Read(len(lead))
        end = text.find(self._close)
        if end >= 0:
            return Read(end, text[:end], State.WHOLE)
        end = len(text) - held_back(text, self._close)
        return Read(end, text[:end])

    def finish(self, text: str) -> Read:
        return Read(len(text), text, State.WHOLE)


class InputReader:
    """Reads the arguments of a custom tool: the text of an object's parameter `input`, without quotes and escapes.
    Where no such object begins, it is the raw text, if that can be told from what follows, or else what is there."""

    def __init__(self, reader: Reader, raw: RawReader | None) -> None:
        """Takes the reader of the object, and that of a raw text."""
        self._reader = reader
        self._raw = raw
        self._is_decided = raw is None
        self._text = _StringText()

    def read(self, text: str) -> Read:
        if not self._is_decided:
            found = match_within(MAX_HEADER, (_INPUT,), text)
            if found is NoMatch.NOT_YET:
                return Read(0)
            self._decide(is_raw=found is NoMatch.NEVER)
        return self._unwrapped(self._reader.read(text))

    def finish(self, text: str) -> Read:
        if not self._is_decided:
            self._decide(is_raw=True)
        return self._unwrapped(self._reader.finish(text))

    def _decide(self, is_raw: bool) -> None:
        self._is_decided = True
        if is_raw and self._raw is not None:
            self._reader = self._raw

    def _unwrapped(self, read: Read) -> Read:
        is_raw = self._reader is self._raw
        return read if is_raw else Read(read.used, self._text.push(read.text), read.state)


class _StringText:
    """Finds the text of `input` in the JSON of an object, in pieces; an object of another form is its own text."""

    _CHARACTERS = re.compile(r'(?:[^"\\]+|\\(?:u[0-9a-fA-F]{4}|[^u]))*')
    _HIGH = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}$")

    def __init__(self) -> None:
        self._json = ""
        self._is_string: bool | None = None
        self._is_over = False

    def push(self, piece: str) -> str:
        """Takes a piece of JSON; returns the text in it."""
        if self._is_over:
            return ""
        self._json += piece
        if self._is_string is None:
            found = match_within(MAX_HEADER, (_INPUT,), self._json)
            if found is NoMatch.NOT_YET:
                return ""
            self._is_string = isinstance(found, Match)
            self._json = self._json[found.end:] if isinstance(found, Match) else self._json
        if not self._is_string:
            text, self._json = self._json, ""
            return text
        return self._decode()

    def _decode(self) -> str:
        found = self._CHARACTERS.match(self._json)
        assert found is not None  # it matches nothing, too
        end = found.end()
        self._is_over = self._json[end:end + 1] == '"'
        if not self._is_over and (high := self._HIGH.search(self._json, max(0, end - 6), end)):
            end = high.start()
        escaped, self._json = self._json[:end], self._json[end:]
        text: str = json.loads(f'"{escaped}"', strict=False)
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


_INPUT = '{"input": "'
