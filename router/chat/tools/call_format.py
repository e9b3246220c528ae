"""How a family of models writes calls of tools, as a description: the texts around names and arguments.

The texts are as the models write them, and as grammars demand them. They are patterns where an answer is read: white
space between their words may be any or none, and a hole stands for a name, an id or a key.
"""

import re
from dataclasses import dataclass
from itertools import product

NAME, QUOTED_ID, WORD, ID, NUMBER = "\ue000", "\ue001", "\ue002", "\ue003", "\ue004"
"""Holes for the function's name and the call's id as JSON strings; for the name as it is; for an id of letters and
digits, and for one of digits."""
FROM_ID, TO_ID, HERE = "\ue005", "\ue006", "\ue007"
"""Places where an id that has several parts begins and ends, and where the arguments begin."""
KEY, KIND, IDENTIFIER = "\ue008", "\ue009", "\ue00a"
"""Holes for the key of a parameter, for the word that tells what its value is, and for the key of Python's arguments.
"""
HOLES = "\ue000-\ue00a"
"""All of them, as a range of characters."""


@dataclass(frozen=True, slots=True)
class Tagged:
    """Arguments as a list of parameters, each between tags: `open` value `shut` `after`. A string stands there as it
    is, any other value as JSON or in Python's words; which of them, the tool's schema tells."""

    open: str
    """Has a hole for the key, and may have one for the kind."""
    shut: str
    pad: str = ""
    """The white space that stands on both sides of a value."""
    after: str = ""
    kinds: tuple[str, str] | None = None
    """The words for strings and for all other values, where the tag itself tells."""


@dataclass(frozen=True, slots=True)
class Keywords:
    """Arguments as Python writes those that have names: `key=value, key=value`."""


@dataclass(frozen=True, slots=True)
class CallFormat:
    """One way to write calls: `begin` call `separator` call ... `end`, where a call is `header` arguments `close`. What
    begins with `other_` is read, too, but never demanded."""

    name: str
    """Several ways may have one name: then the template tells which of them it is."""
    models: str
    """Those that write so, for people."""
    taught_by: re.Pattern[str]
    """A pattern that is found in the templates of models that call so."""
    marker: str
    """The marker between text and the calls behind it; empty if there is no text before calls."""
    begin: str
    """The text before the first call; it begins with the marker."""
    header: str
    close: str
    separator: str
    end: str = ""
    arguments: Tagged | Keywords | None = None
    """How arguments are written: as an object in JSON, if nothing else is said."""
    other_begins: tuple[str, ...] = ()
    other_headers: tuple[str, ...] = ()
    other_closes: tuple[str, ...] = ()
    other_separators: tuple[str, ...] = ()
    other_ends: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    has_short_ids: bool = False
    """Whether templates take ids of calls of 9 letters and digits only."""
    opened: str = ""
    """The beginning of `begin` that the prompt has already."""
    prose: str = ""
    """The text before an answer's text, where that has a name like a function."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which it can be asked for."""
        return self.name, *self.aliases

    @property
    def firsts(self) -> tuple[str, ...]:
        """The patterns of the first call, up to where it is certain that it is one."""
        return tuple(map("".join, product((self.begin, *self.other_begins), self._headers)))

    @property
    def nexts(self) -> tuple[str, ...]:
        """The patterns of another call behind a call."""
        return tuple(map("".join, product((self.separator, *self.other_separators), self._headers)))

    @property
    def closes(self) -> tuple[str, ...]:
        """The patterns of the text behind the arguments."""
        return self.close, *self.other_closes

    @property
    def ends(self) -> tuple[str, ...]:
        """The patterns of the text behind all calls, the longest first."""
        return tuple(sorted(filter(None, (self.end, *self.other_ends)), key=len, reverse=True))

    @property
    def close_marks(self) -> tuple[str, ...]:
        """The beginnings of `closes` by which the end of arguments between tags is told."""
        return tuple(close.partition("\n")[0] for close in self.closes)

    @property
    def raw_close(self) -> str | None:
        """The text at which a text of any form ends that stands in place of the arguments; None if it could not be told
        from such a text."""
        found = self.close or self.separator
        return found if self.arguments is None and re.search(r"[<\[]", found) else None

    @property
    def texts(self) -> str:
        """All that may be written around names and arguments. Special tokens that are a part of it are text."""
        tags = "".join((self.arguments.open, self.arguments.shut)) if isinstance(self.arguments, Tagged) else ""
        return "\n".join((*self.firsts, *self.nexts, *self.closes, *self.ends, tags, self.prose))

    @property
    def _headers(self) -> tuple[str, ...]:
        return tuple(map("".join, product((self.header, *self.other_headers), self._looks)))

    @property
    def _looks(self) -> tuple[str, ...]:
        """The patterns with which arguments begin; a text in place of them may begin with anything."""
        match self.arguments:
            case Tagged(open=opening):
                return HERE + opening.partition(KEY)[0], *(HERE + mark for mark in self.close_marks)
            case Keywords():
                return f"{HERE}{IDENTIFIER}=", *(HERE + close for close in self.closes)
        return (HERE + "{",) if self.raw_close is None else (HERE + "{", HERE)
