"""Converts values that are written in Python's words into JSON, in pieces of any size. Pure."""

import json
import re

from penstock.router.chat.tools.call_format import IDENTIFIER
from penstock.router.chat.tools.pattern import MAX_HEADER, NoMatch, match_within
from penstock.router.chat.tools.readers import Read, State

_CONSTANTS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_WORD = re.compile(r"[\w.+-]+")
_ESCAPE = re.compile(r"\\(?:[0-7]{1,3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[^xuU0-7])", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "\n": "", "\\": "\\",
            "'": "'", '"': '"'}
_LONGEST_ESCAPE = 10
_QUOTED = json.JSONEncoder(ensure_ascii=False).encode
_OCTAL = frozenset("01234567")
_CLOSING = {"[": "]", "{": "}", "(": ")"}


class Literal:
    """Converts one value. It ends before a comma or a closing bracket that is not its own."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._quote = ""
        self._comma = ""
        """A comma that is written if another item follows."""
        self._has_value = False
        """Whether a value stands there, behind which only a comma, colon or bracket may come."""
        self._is_key = False

    def read(self, text: str, is_last: bool = False) -> Read:
        """Converts as much as is certain; of the last text all."""
        written: list[str] = []
        place = 0
        while place < len(text):
            convert = self._string if self._quote else self._token
            end = convert(text, place, written, is_last)
            if isinstance(end, State):
                return Read(place, "".join(written), end)
            if end == place:
                break
            place = end
        return Read(place, "".join(written))

    def _token(self, text: str, place: int, written: list[str], is_last: bool) -> int | State:
        """Converts a number, constant, bracket or comma; returns where it ends, or why nothing follows."""
        character = text[place]
        if character.isspace():
            return place + 1
        if not self._open and character in ",)]}":
            return State.WHOLE if self._has_value else State.BROKEN
        if character in ",:)]}":
            return place + 1 if self._open and self._punctuation(character, written) else State.BROKEN
        if self._has_value:
            return State.BROKEN
        if character in "[({":
            if self._open and self._is_key:
                return State.BROKEN
            written.append(self._take_comma() + ("{" if character == "{" else "["))
            self._open.append(character)
            self._is_key = character == "{"
            return place + 1
        if character in "'\"":
            return self._begin_string(text, place, written, is_last)
        return self._word(text, place, written, is_last)

    def _punctuation(self, character: str, written: list[str]) -> bool:
        """Writes a comma, colon or closing bracket; tells whether it may stand there."""
        inside = self._open[-1]
        if character == ":":
            if not (inside == "{" and self._is_key and self._has_value):
                return False
            written.append(": ")
            self._is_key = self._has_value = False
            return True
        if inside == "{" and self._is_key and self._has_value:
            return False
        if character == ",":
            is_fit, self._comma = self._has_value, ", "
            self._has_value, self._is_key = False, inside == "{"
            return is_fit
        if character != _CLOSING[inside] or (inside == "{" and not self._is_key and not self._has_value):
            return False
        self._open.pop()
        written.append("}" if inside == "{" else "]")
        self._comma, self._has_value, self._is_key = "", True, False
        return True

    def _begin_string(self, text: str, place: int, written: list[str], is_last: bool) -> int:
        if not is_last and len(text) < place + 3 and text[place:] == text[place] * (len(text) - place):
            return place  # it may be a quote of three marks, or an empty string
        self._quote = text[place] * (3 if text.startswith(text[place] * 3, place) else 1)
        written.append(self._take_comma() + '"')
        return place + len(self._quote)

    def _string(self, text: str, place: int, written: list[str], is_last: bool) -> int | State:
        """Converts characters of a string up to the next quote or backslash, or one of these."""
        quote = self._quote
        if text.startswith(quote, place):
            self._quote, self._has_value = "", True
            written.append('"')
            return place + len(quote)
        if text[place] == "\\":
            return self._escape(text, place, written, is_last)
        if text[place] == quote[0]:
            if not is_last and len(text) < place + len(quote):
                return place
            written.append(escaped(quote[0]))
            return place + 1
        ends = [end for mark in ("\\", quote[0]) if (end := text.find(mark, place)) >= 0]
        end = min(ends, default=len(text))
        written.append(escaped(text[place:end]))
        return end

    def _escape(self, text: str, place: int, written: list[str], is_last: bool) -> int:
        """Converts an escape, or a backslash that begins none, which stands for itself."""
        found = _ESCAPE.match(text, place)
        if not is_last:
            may_grow = len(text) < place + _LONGEST_ESCAPE if found is None else (
                found.end() == len(text) and found[0][1] in _OCTAL and len(found[0]) < 4)
            if may_grow:
                return place
        written.append(escaped("\\") if found is None else _unescaped(found[0]))
        return place + 1 if found is None else found.end()

    def _word(self, text: str, place: int, written: list[str], is_last: bool) -> int | State:
        """Converts a number, a constant, or a name, which is a string."""
        found = _WORD.match(text, place)
        if found is None:
            return State.BROKEN
        if found.end() - place > MAX_HEADER:
            return State.BROKEN
        if found.end() == len(text) and not is_last:
            return place
        converted = _converted(found[0])
        is_key = self._is_key and not converted.startswith('"')
        written.append(self._take_comma() + (f'"{converted}"' if is_key else converted))
        self._has_value = True
        return found.end()

    def _take_comma(self) -> str:
        comma, self._comma = self._comma, ""
        return comma


class KeywordsReader:
    """Reads the arguments of a call in Python, `key=value, key=value`, up to the bracket behind them."""

    def __init__(self) -> None:
        self._literal: Literal | None = None
        self._opening = "{"

    def read(self, text: str) -> Read:
        return self._read(text, is_last=False)

    def finish(self, text: str) -> Read:
        return self._read(text, is_last=True)

    def _read(self, text: str, is_last: bool) -> Read:
        written: list[str] = []
        place = 0
        while True:
            if self._literal is None:
                found = match_within(MAX_HEADER, (f"{IDENTIFIER}=",), text, place)
                if isinstance(found, NoMatch):
                    return self._between(found, text, place, written)
                written.append(f'{self._opening}"{found.identifier}": ')
                self._opening, self._literal, place = ", ", Literal(), found.end
            read = self._literal.read(text[place:], is_last)
            written.append(read.text)
            place += read.used
            if read.state is not State.WHOLE:
                return Read(place, "".join(written), read.state)
            self._literal = None
            if text[place] == ",":
                place += 1
            elif text[place] != ")":
                return Read(place, "".join(written), State.BROKEN)

    def _between(self, found: NoMatch, text: str, place: int, written: list[str]) -> Read:
        """Returns the progress where no other key stands."""
        if found is NoMatch.NOT_YET:
            return Read(place, "".join(written))
        place += len(text[place:]) - len(text[place:].lstrip())
        if text[place:place + 1] != ")":
            return Read(place, "".join(written), State.BROKEN)
        written.append("{}" if self._opening == "{" else "}")
        return Read(place, "".join(written), State.WHOLE)


def as_json(text: str) -> str | None:
    """Returns a value in Python's words as JSON; None if the text is none."""
    read = Literal().read(text + ",", is_last=True)
    return read.text if read.state is State.WHOLE and read.used == len(text) else None


def escaped(text: str) -> str:
    """Returns the characters of a string as they stand in JSON, without the quotes."""
    return _QUOTED(text)[1:-1]


def _converted(word: str) -> str:
    if word in _CONSTANTS:
        return _CONSTANTS[word]
    if _NUMBER.fullmatch(word):
        return word
    for read in (lambda: int(word, 0), lambda: float(word)):
        try:
            return json.dumps(read(), allow_nan=False)
        except (ValueError, OverflowError):
            continue
    return json.dumps(word, ensure_ascii=False)


def _unescaped(escape: str) -> str:
    """Returns the text of one of Python's escapes, as JSON."""
    kind = escape[1]
    if kind == "u":
        return escape
    code = int(escape[2:], 16) if kind in "xU" else int(escape[1:], 8) if kind in _OCTAL else None
    if code is None:
        return escaped(_ESCAPED.get(kind, escape))
    if 0xd800 <= code <= 0xdfff or code > 0x10ffff:
        return escaped(escape)
    return escaped(chr(code))
