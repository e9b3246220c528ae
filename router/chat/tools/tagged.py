"""Reads arguments that stand between tags, in pieces of any size, as the JSON of an object. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.router.chat.marks import held_back
from penstock.router.chat.tools.call_format import KEY, Tagged
from penstock.router.chat.tools.literals import escaped
from penstock.router.chat.tools.pattern import MAX_HEADER, Match, NoMatch, match_within
from penstock.router.chat.tools.readers import Quotes, Read, State
from penstock.router.chat.tools.value_types import OTHERS, STRING, Types, property_types, typed

MAX_LOOK = 256
"""The most characters behind a closing tag by which it is told from one in a string."""


class TaggedReader:
    """Reads parameters. A string is given as it comes, any other value as soon as it is whole. A closing tag counts
    where another parameter or the end of the call follows, and not within a string of an array or object, so that
    strings may have tags in them."""

    def __init__(self, form: Tagged, closes: Sequence[str], schema: Mapping[str, Any]) -> None:
        """Takes the patterns that begin the text behind all parameters."""
        self._form = form
        self._closes = closes
        self._schema = schema
        self._follows = (form.open.partition(KEY)[0], *closes)
        self._types: Types | None = None
        """The types of the value that has begun."""
        self._is_padded = False
        self._held: list[str] = []
        """The pieces of a value that is no string."""
        self._quotes = Quotes()
        self._opening = "{"

    def read(self, text: str) -> Read:
        return self._read(text, is_last=False)

    def finish(self, text: str) -> Read:
        read = self._read(text, is_last=True)
        return Read(len(text), read.text + "".join(self._held), read.state)

    def _read(self, text: str, is_last: bool) -> Read:
        written: list[str] = []
        place = 0
        while True:
            before = place, self._types
            if self._types is None:
                found = match_within(MAX_HEADER, (self._form.open,), text, place)
                if found is NoMatch.NEVER:
                    return self._end(text, place, written)
                if isinstance(found, Match):
                    place = self._begin(found, written)
            else:
                place = self._value(text, place, written, is_last)
            if place == len(text) or before == (place, self._types):
                return Read(place, "".join(written))

    def _end(self, text: str, place: int, written: list[str]) -> Read:
        """Returns the progress where no other parameter stands. Whatever does ends the call."""
        if match_within(MAX_HEADER, self._closes, text, place) is NoMatch.NOT_YET:
            return Read(place, "".join(written))
        written.append("{}" if self._opening == "{" else "}")
        return Read(place, "".join(written), State.WHOLE)

    def _begin(self, found: Match, written: list[str]) -> int:
        kinds = self._form.kinds
        if kinds is None:
            self._types = property_types(self._schema, found.key)
        else:
            self._types = STRING if found.kind == kinds[0] else OTHERS
        quote = '"' if self._types == STRING else ""
        written.append(f'{self._opening}"{escaped(found.key)}": {quote}')
        self._opening, self._is_padded = ", ", bool(self._form.pad)
        return found.end

    def _value(self, text: str, place: int, written: list[str], is_last: bool) -> int:
        """Takes as much of a value as is certain, and returns where that ends."""
        form = self._form
        if self._is_padded and place < len(text):
            self._is_padded = False
            if text.startswith(form.pad, place):
                place += len(form.pad)
        tag = text.find(form.shut, place)
        if tag < 0:
            held = 0 if is_last else max(held_back(text, form.shut), held_back(text, form.pad + form.shut))
            end = max(place, len(text) - held)
            self._take(text[place:end], written)
            return end
        behind = tag + len(form.shut)
        found = match_within(MAX_LOOK, self._follows, text, behind)
        end = tag - len(form.pad) if text[place:tag].endswith(form.pad) else tag
        self._take(text[place:end], written)
        if found is NoMatch.NEVER or self._quotes.is_open:
            self._take(text[end:behind], written)
            return behind
        if found is NoMatch.NOT_YET and not is_last:
            return end
        self._close(written)
        return behind

    def _take(self, piece: str, written: list[str]) -> None:
        if self._types != STRING:
            self._held.append(piece)
            if "string" not in (self._types or ()):
                self._quotes.push(piece)
        elif piece:
            written.append(escaped(piece))

    def _close(self, written: list[str]) -> None:
        assert self._types is not None
        written.append('"' if self._types == STRING else typed("".join(self._held), self._types))
        self._held.clear()
        self._quotes = Quotes()
        self._types = None
