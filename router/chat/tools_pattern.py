"""Where a text that still grows has a pattern of `penstock.router.chat.tools_format`. Pure."""

import re
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache

import orjson

from penstock.router.chat.tools_format import NAME

_WORD = re.compile(r'</?\w+>|\[\w+\]|"\w+"|\w+|\S')
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Match:
    """The end of a pattern that was found, and the name in it."""

    end: int
    name: str


class NoMatch(Enum):
    """Why a pattern was not found."""

    NEVER = auto()
    NOT_YET = auto()
    """The text ends within the pattern."""


def match(pattern: str, text: str, start: int = 0) -> Match | NoMatch:
    """Looks for `pattern` at `start`, after white space."""
    name = ""
    for word in _words(pattern):
        while text[start:start + 1].isspace():
            start += 1
        if word == NAME:
            string = _STRING.match(text, start)
            if string is None:
                return NoMatch.NOT_YET if text[start:start + 1] in ("", '"') else NoMatch.NEVER
            try:
                name = orjson.loads(string[0])
            except orjson.JSONDecodeError:
                return NoMatch.NEVER
            start = string.end()
        elif text.startswith(word, start):
            start += len(word)
        else:
            return NoMatch.NOT_YET if word.startswith(text[start:]) else NoMatch.NEVER
    return Match(start, name)


@cache
def _words(pattern: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(pattern))
