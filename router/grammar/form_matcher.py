"""A grammar of the answer's text, as llguidance compiles it, and the matcher that follows an answer through it."""

from collections.abc import Sequence
from contextlib import suppress

from llguidance import LLMatcher

from penstock.router.grammar.matcher import GrammarError, masks_along

_MOST_BEGINNINGS = 32
"""How many tokens a mask may allow if they are to be the beginnings of one text."""


class FormMatcher:
    """Holds the state of one answer in its grammar, as `Matcher`."""

    __slots__ = ("_matcher", "_num_bytes", "_tokens")

    def __init__(self, matcher: LLMatcher, num_bytes: int, tokens: Sequence[bytes]) -> None:
        """`num_bytes` is the length of a mask, `tokens` the text of each token."""
        self._matcher = matcher
        self._num_bytes = num_bytes
        self._tokens = tokens

    def push(self, token_id: int) -> None:
        if not self._matcher.consume_token(token_id):
            raise failure(self._matcher)

    def mask(self) -> bytes:
        mask: bytes = self._matcher.compute_bitmask()
        if self._matcher.is_error():
            raise failure(self._matcher)
        return mask[:self._num_bytes]

    def masks(self, drafts: Sequence[int] = ()) -> bytes | None:
        return masks_along(self, drafts, everything=b"\xff" * self._num_bytes)

    def copy(self) -> "FormMatcher":
        return FormMatcher(self._matcher.deep_copy(), self._num_bytes, self._tokens)

    def forced(self, most: int, takes_longest: bool = True) -> list[int]:
        """Does as `Matcher` says. llguidance would tell all of such a text, which never ends for `a{1000000000}`. A
        limit on the grammar's work ends the text."""
        forced: list[int] = []
        ahead = self.copy()
        with suppress(GrammarError):
            while len(forced) < most and not ahead._matcher.is_stopped():
                token_id = self._only_text(ahead.mask(), takes_longest)
                if token_id is None:
                    break
                ahead.push(token_id)
                forced.append(token_id)
        return forced

    def _only_text(self, mask: bytes, takes_longest: bool) -> int | None:
        """Returns the longest or the shortest token that a mask allows, if all are beginnings of one text."""
        bits = int.from_bytes(mask, "little")
        if not 0 < bits.bit_count() <= _MOST_BEGINNINGS:
            return None
        allowed = []
        while bits:
            allowed.append((bits & -bits).bit_length() - 1)
            bits &= bits - 1
        if any(token_id >= len(self._tokens) for token_id in allowed):
            return None
        allowed.sort(key=lambda token_id: len(self._tokens[token_id]))
        text = self._tokens[allowed[-1]]
        is_one = text and all(text.startswith(self._tokens[token_id]) for token_id in allowed)
        return allowed[-1 if takes_longest else 0] if is_one else None

    @property
    def is_complete(self) -> bool:
        return self._matcher.is_stopped() and not self._matcher.is_error()


class FormGrammar:
    """A grammar of an answer's text, as `Grammar`."""

    __slots__ = ("_first",)

    def __init__(self, first: FormMatcher) -> None:
        """Takes a matcher that is at the grammar's beginning and that nobody else moves."""
        self._first = first

    @property
    def num_free(self) -> int:
        return 0

    def start(self) -> FormMatcher:
        return self._first.copy()


def failure(matcher: LLMatcher) -> GrammarError:
    """Returns the error of a matcher that has failed."""
    return in_one_sentence(matcher.get_error())


def in_one_sentence(error: str) -> GrammarError:
    """Makes an error of llguidance's message without the grammar's own text."""
    lines = [line.strip() for line in error.partition("<non-verbose/>")[0].splitlines()]
    message = " ".join(line for line in lines if line and not _quotes_source(line))
    return GrammarError(_shorten(message) or "nothing can follow")


def _quotes_source(line: str) -> bool:
    """Tells whether a line is like `12 | start: "a"` or is the caret below such a line."""
    return line == "^" or line.partition(" | ")[0].isdigit()


def _shorten(message: str, limit: int = 400) -> str:
    return message if len(message) <= limit else f"{message[:limit]}…"
