"""Grammars in the notation whose rules are `name ::= …`, from `root` on: llama.cpp's GBNF, which others call EBNF."""

import re

from llguidance.gbnf_to_lark import gbnf_to_lark

from penstock.router.grammar.matcher import GrammarError

MAX_RULES = 600
"""The most rules of a grammar. To read them takes a time that grows with their square, a second or two for so many; and
the compiler follows a chain of some thousands of them down until its stack is exhausted."""
RULE = re.compile(r"^[ \t]*[\w-]+[ \t]*::=", re.MULTILINE)
_PIECE = re.compile(r'"(?:[^"\\]|\\.?)*(?:"|\Z)|\[(?:[^\]\\]|\\.?)*(?:\]|\Z)|#[^\r\n]*|\.', re.DOTALL)
"""One that is not closed goes up to the end, so that nobody looks for its end from each place in it."""
_BREAK = re.compile(r"\s+(\|?)")
"""White space, with the sign of a further alternative behind it."""
_SIGN = re.compile(r"\\u([0-9A-Fa-f]{4})|\\U([0-9A-Fa-f]{8})|\\.|[\x00-\x1f\x7f]", re.DOTALL)
_OPERATOR = re.compile(r"\\.|[&~]|[\x00-\x1f\x7f]", re.DOTALL)
_ANY = "[\\x00-\U0010ffff]"


def to_lark(source: str) -> str:
    """Returns the grammar in Lark's notation. GrammarError says where it can't be read. May take a second."""
    try:
        plain = _BREAK.sub(_joined, _PIECE.sub(_plain, source))
        return gbnf_to_lark(plain).removeprefix("%llguidance {}").lstrip()
    except RecursionError as error:
        raise GrammarError("it can't be read: its groups are nested too deep") from error
    except Exception as error:  # it has one class for its own errors, and Python's where a text ends too early
        raise GrammarError(f"it can't be read: {error!s:.200}") from error


def _joined(found: re.Match[str]) -> str:
    """Returns white space without line breaks, which would end a rule, where an alternative of the rule follows."""
    return " |" if found[1] and "\n" in found[0] else found[0]


def _plain(piece: re.Match[str]) -> str:
    """Returns a text, a class of characters or a comment in the way that llguidance reads rightly."""
    text = piece[0]
    if text.startswith("#"):
        return ""
    if text == ".":
        return _ANY
    text = _SIGN.sub(_sign, text)
    return _OPERATOR.sub(lambda sign: sign[0] if sign[0][0] == "\\" else _escaped(sign[0]), text)


def _sign(sign: re.Match[str]) -> str:
    """Returns a character for the number of one; those that may have a meaning of their own stay escaped."""
    if code := sign[1] or sign[2]:
        character = chr(int(code, 16))
        character.encode()
        return character if ord(character) > 127 else _escaped(character)
    return sign[0] if sign[0][0] == "\\" else _escaped(sign[0])


def _escaped(character: str) -> str:
    return f"\\x{ord(character):02x}"
