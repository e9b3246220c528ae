"""Regular expressions that files bring, matched in a time that grows with the text alone, whatever they are.

The syntax is Python's, the engine that of Rust, which has no backtracking (https://docs.rs/regex); pydantic brings it.
What this engine can't do is refused, but for lookaheads at the beginning of a pattern or behind one of fixed length,
as quantised checkpoints have them (`^(?!.*vision).*$`): these are patterns of their own, whose answers are combined.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pydantic_core import SchemaError, SchemaValidator, core_schema

MAX_LENGTH = 1 << 16
MAX_PATTERNS, MAX_WORK = 4096, 1 << 18
"""Of one file: how many patterns, and the characters of all, each as often as the largest count of its pattern says."""
MAX_COUNT = 100
"""In `{n}`, of which none may be within another's group: what is repeated is compiled so often."""

_TOKEN = re.compile(r"""
    (?P<escape> \\ (?: x[0-9A-Fa-f]{2} | u[0-9A-Fa-f]{4} | . ) )
  | (?P<set> \[ \^? \]? (?: \\. | [^\]\\] )* \] )
  | (?P<open> \( (?: \? (?: P<\w+> | P. | <. | [a-zA-Z-]+[:)] | . )? )? )
  | (?P<close> \) )
  | (?P<bar> \| )
  | (?P<count> (?: [*+?] | \{\d+(?:,\d*)?\} | \{,\d+\} ) [?+]? )
  | (?P<place> [\^$] )
  | (?P<other> . )
""", re.VERBOSE | re.DOTALL)
_SETS = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t\n\v\f\r "}
_CHARACTERS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS = re.compile(r"\(\?([aimsu]+)\)")
_AHEAD = ("(?=", "(?!")
WHOLE = r"\z"
"""The end of a pattern that matches whole texts, as `re.fullmatch` does."""


class PatternError(ValueError):
    """A text is no pattern, or none that is read: a sentence that goes on behind its name."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str                            # as Rust has it
    depth: int                           # how many groups it is in, its own not among them


@dataclass(frozen=True, slots=True)
class _Alternative:
    """Matches texts whose first `length` characters are those of the head, and what comes then is both as the
    lookaheads ask and the rest."""

    length: int
    head: Callable[[str], bool]
    looks: tuple[tuple[bool, Callable[[str], bool]], ...]
    rest: Callable[[str], bool]

    def matches(self, text: str, until: int | None) -> bool:
        if not self.length and not self.looks:
            return self.rest(text[:until])
        behind = text[self.length:]
        return (self.head(text[:self.length]) and all(look(behind) is wanted for wanted, look in self.looks)
                and self.rest(text[self.length:until]))


def check_work(texts: Collection[str]) -> None:
    """Raises PatternError if so many patterns of a file would take long to compile."""
    if len(texts) > MAX_PATTERNS:
        raise PatternError(f"there are {len(texts)} patterns, at most {MAX_PATTERNS} are read")
    work = sum(len(text) * max(1, *(int(count[:9]) for count in re.findall(r"[0-9]+(?=,?[0-9]*\})", text)), 1)
               for text in texts)
    if work > MAX_WORK:
        raise PatternError(f"all patterns together have {work} characters, with their repetitions by numbers, at most "
                           f"{MAX_WORK} are read")


class Pattern:
    """A regular expression. Raises PatternError."""

    def __init__(self, text: str, end: str = "") -> None:
        """end: what is to come behind it, in Rust's syntax; by default anything, as for `re.match`"""
        if len(text) > MAX_LENGTH:
            raise PatternError(f"it has {len(text)} characters, at most {MAX_LENGTH} are read")
        flags = found[1] if (found := _FLAGS.match(text)) else ""
        self._flags = "".join(sorted(set(flags) & set("ims")))
        self._end = end
        tokens = list(_tokens(text[found.end():] if found else text))
        has_look = any(token.text in _AHEAD for token in tokens)
        self._alternatives = [self._alternative(each) for each in (_split(tokens) if has_look else [tokens])]

    def matches(self, text: str, until: int | None = None) -> bool:
        """Tells whether the pattern matches a text, or its first `until` characters: lookaheads see what is behind."""
        return any(each.matches(text, until) for each in self._alternatives)

    def _alternative(self, tokens: Sequence[_Token]) -> _Alternative:
        first = next((at for at, token in enumerate(tokens) if token.text in _AHEAD), None)
        if first is None:
            return _Alternative(0, _always, (), self._compiled(tokens, self._end))
        looks, at = [], first
        while at < len(tokens) and tokens[at].text in _AHEAD:
            end = next(index for index in range(at + 1, len(tokens))
                       if tokens[index].kind == "close" and tokens[index].depth == tokens[at].depth)
            looks.append((tokens[at].text == "(?=", tokens[at + 1:end]))
            at = end + 1
        head, rest = tokens[:first], tokens[at:]
        length = sum(token.kind != "place" for token in head)
        inner = [token for _, look in looks for token in look]
        if any(token.kind != "one" and token.text not in ("^", r"\A") for token in head) or any(
                token.text in _AHEAD for token in (*inner, *rest)) or (length and any(
                token.kind == "place" and token.text != "$" for token in (*inner, *rest))):
            raise PatternError("it has a lookahead that is neither at its beginning nor behind characters of fixed "
                               "number, which is not read")
        return _Alternative(
            length, self._compiled(head, WHOLE) if length else _always,
            tuple((wanted, self._compiled(look)) for wanted, look in looks), self._compiled(rest, self._end))

    def _compiled(self, tokens: Sequence[_Token], end: str = "") -> Callable[[str], bool]:
        piece = "".join(token.text for token in tokens)
        flags = f"(?{self._flags})" if self._flags else ""
        try:
            return SchemaValidator(core_schema.str_schema(
                pattern=rf"\A{flags}(?:{piece}){end}", regex_engine="rust-regex")).isinstance_python
        except SchemaError as error:
            reason = str(error).rpartition("error: ")[2] if "error: " in str(error) else "it is too large"
            raise PatternError(f"it is not read: {reason.strip()}") from error


def _always(text: str) -> bool:
    return True


def _tokens(text: str) -> Iterator[_Token]:
    """Yields a pattern's parts. Raises PatternError for what Rust's engine lacks, or takes for something else."""
    groups: list[int] = []               # for each that is open, whether something in it is counted
    last = 0                             # the same of the group that ends before the next token
    for found in _TOKEN.finditer(text):
        kind, part, before, last = found.lastgroup, found[0], last, 0
        if kind == "open":
            yield _Token("open", _opened(part), len(groups))
            groups.append(0)
        elif kind == "close":
            if not groups:
                raise PatternError("it has a ) without a (")
            last = groups.pop()
            if groups:
                groups[-1] |= last
            yield _Token("close", ")", len(groups))
        elif kind == "count":
            counted = _counted(part)
            if counted and before:
                raise PatternError(f"it counts ({part}) what has counts in it, which is not read")
            if groups:
                groups[-1] |= counted
            last = before
            yield _Token("count", part.replace("{,", "{0,"), len(groups))
        else:
            name, translated = _single(str(kind), part)
            yield _Token(name, translated, len(groups))
    if groups:
        raise PatternError("it has a ( without a )")


def _split(tokens: Sequence[_Token]) -> list[list[_Token]]:
    """Returns the alternatives between the bars outside of all groups."""
    found: list[list[_Token]] = [[]]
    for token in tokens:
        if token.kind == "bar" and not token.depth:
            found.append([])
        else:
            found[-1].append(token)
    return found


def _opened(part: str) -> str:
    if part == "(" or part == "(?:" or part.startswith("(?P<"):
        return "(?:"
    if part in _AHEAD or re.fullmatch(r"\(\?[ims]*(-[ims]+)?:", part):
        return part
    raise PatternError(f"it has a group that begins with {part}, which is not read")


def _counted(part: str) -> int:
    """Tells whether something is counted by numbers, 0 or 1."""
    if len(part) > 1 and part.endswith("+"):
        raise PatternError(f"it has the possessive {part}, which is not read")
    counts = re.findall(r"[0-9]+", part)
    if any(len(count) > 4 or int(count) > MAX_COUNT for count in counts):
        raise PatternError(f"it has the count {part:.20}, at most {MAX_COUNT} is read")
    return int(bool(counts))


def _single(kind: str, part: str) -> tuple[str, str]:
    """Returns Rust's form of a character, a set of them or a place, and its kind."""
    if kind == "set":
        return "one", _set(part)
    if kind in ("bar", "place"):
        return kind, part
    if kind == "escape":
        if part in (r"\A", r"\b", r"\B"):
            return "place", part
        if part == r"\Z":
            return "place", r"\z"
        return "one", _escaped(part, is_in_set=False)
    if part == ".":
        return "one", part
    if part in ("[", "\\"):
        raise PatternError(f"it has a {part} without an end")
    return "one", _character(part)


def _set(part: str) -> str:
    inner, sign = part[1:-1], ""
    if inner.startswith("^"):
        inner, sign = inner[1:], "^"
    pieces = re.findall(r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|.)|.", inner, re.DOTALL)
    if "[" in pieces or any(first == second and first in "&-~|" for first, second in pairwise(pieces)):
        raise PatternError(f"it has the set {part:.40}, which is not read")
    return f"[{sign}{''.join(piece if piece == '-' else _escaped(piece, True) for piece in pieces)}]"


def _escaped(part: str, is_in_set: bool) -> str:
    if not part.startswith("\\"):
        return _character(part)
    code = part[1:]
    if code.lower() in _SETS:
        inner = f"{'^' * code.isupper()}{_SETS[code.lower()]}"
        return inner if is_in_set and code.islower() else f"[{inner}]"
    if is_in_set and code == "b":
        return _character("\b")
    if code in _CHARACTERS:
        return _character(_CHARACTERS[code])
    if len(code) > 1:
        return _character(chr(int(code[1:], 16)))
    if code.isascii() and code.isalnum():
        raise PatternError(f"it has {part}, which is not read")
    return _character(code)


def _character(character: str) -> str:
    """Returns a character that stands for itself."""
    is_plain = character.isalnum() or not character.isascii()
    return character if is_plain else f"\\x{{{ord(character):x}}}"
