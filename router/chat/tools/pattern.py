"""Where a text that still grows has a pattern of `penstock.router.chat.tools.call_format`. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache

import orjson

from penstock.router.chat.tools.call_format import (
    FROM_ID,
    HERE,
    HOLES,
    ID,
    IDENTIFIER,
    KEY,
    KIND,
    NAME,
    NUMBER,
    QUOTED_ID,
    TO_ID,
    WORD,
)

_WORD = re.compile(rf'[{HOLES}]|</?[^\s<>"={HOLES}]*>|\[\w+\]|"\w+"|```\w*|\w+|\S')
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_HOLES = {
    NAME: _STRING, QUOTED_ID: _STRING, WORD: re.compile(r"""[^\s<>\[\]{}()"'=|,:;]+"""), ID: re.compile(r"[\w.:-]+"),
    NUMBER: re.compile(r"\d+"), KEY: re.compile(rf'[^<>"\n{HOLES}]+'), KIND: re.compile(r"\w+"),
    IDENTIFIER: re.compile(r"(?!\d)[\w$@][\w$@./-]*")}


@dataclass(frozen=True, slots=True)
class Match:
    """The end of a pattern that was found, the place in it where arguments begin, and what its holes had."""

    end: int
    here: int
    name: str
    id: str | None
    key: str
    kind: str
    identifier: str


MAX_HEADER = 1024
"""The most characters from where a call or a parameter may begin to its arguments or its value."""


class NoMatch(Enum):
    """Why a pattern was not found."""

    NEVER = auto()
    NOT_YET = auto()
    """The text ends within the pattern."""


def match_within(most: int, patterns: Iterable[str], text: str, start: int = 0) -> Match | NoMatch:
    """Looks for patterns as `match_any` does. Those not found within `most` characters never are, however the text was
    cut."""
    end = start + most
    found = match_any(patterns, text[:end] if end < len(text) else text, start)
    return NoMatch.NEVER if found is NoMatch.NOT_YET and len(text) >= end else found


def match_any(patterns: Iterable[str], text: str, start: int = 0) -> Match | NoMatch:
    """Looks for the first of several patterns that is found; for none as long as an earlier one may still be."""
    for pattern in patterns:
        found = match(pattern, text, start)
        if found is not NoMatch.NEVER:
            return found
    return NoMatch.NEVER


def match(pattern: str, text: str, start: int = 0) -> Match | NoMatch:
    """Looks for `pattern` at `start`, after white space."""
    found: dict[str, str] = {}
    places: dict[str, int] = {}
    for word in _words(pattern):
        if word in (HERE, TO_ID):
            places[word] = start
            continue
        while text[start:start + 1].isspace():
            start += 1
        if word == FROM_ID:
            places[word] = start
        elif word in _HOLES:
            value = _hole(word, text, start)
            if isinstance(value, NoMatch):
                return value
            found[word] = value[1]
            start = value[0]
        elif text.startswith(word, start):
            start += len(word)
        else:
            return NoMatch.NOT_YET if word.startswith(text[start:]) else NoMatch.NEVER
    spanned = text[places[FROM_ID]:places[TO_ID]] if TO_ID in places else None
    return Match(
        start, places.get(HERE, start), found.get(NAME) or found.get(WORD, ""),
        spanned or found.get(QUOTED_ID) or found.get(ID), found.get(KEY, "").strip(), found.get(KIND, ""),
        found.get(IDENTIFIER, ""))


def _hole(hole: str, text: str, start: int) -> tuple[int, str] | NoMatch:
    """Returns where the text of a hole ends, and this text; one without quotes may go on where the text ends."""
    found = _HOLES[hole].match(text, start)
    is_string = hole in (NAME, QUOTED_ID)
    if found is None:
        return NoMatch.NOT_YET if text[start:start + 1] in (("", '"') if is_string else ("",)) else NoMatch.NEVER
    if not is_string:
        return NoMatch.NOT_YET if found.end() == len(text) else (found.end(), found[0])
    try:
        return found.end(), orjson.loads(found[0])
    except orjson.JSONDecodeError:
        return NoMatch.NEVER


def fits(hole: str, text: str) -> bool:
    """Tells whether a hole can have this text."""
    return _HOLES[hole].fullmatch(text) is not None and text == text.strip()


@cache
def _words(pattern: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(pattern))
