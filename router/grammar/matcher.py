"""A compiled grammar, and where in it an answer is: what the engine knows of structured output."""

from llguidance import LLMatcher


class GrammarError(Exception):
    """A grammar can't be compiled, or can't be followed any further; the message says why."""


class Matcher:
    """The state of one answer. It follows from the answer's tokens alone."""

    __slots__ = ("_matcher", "_num_bytes")

    def __init__(self, matcher: LLMatcher, num_bytes: int) -> None:
        """`num_bytes`: length of a mask."""
        self._matcher = matcher
        self._num_bytes = num_bytes

    def push(self, token_id: int) -> None:
        """Take the next token, one that the mask allowed. GrammarError if it can't go on: a limit was met."""
        if not self._matcher.consume_token(token_id):
            raise failure(self._matcher)

    def mask(self) -> bytes:
        """What may come next: a bit for each token of the vocabulary, the lowest of little-endian uint32 words first.

        An end-of-sequence token is among them where the answer may end. Other threads run meanwhile. GrammarError if a
        limit on the grammar's work was met.
        """
        mask: bytes = self._matcher.compute_bitmask()
        if self._matcher.is_error():
            raise failure(self._matcher)
        return mask[:self._num_bytes]

    @property
    def is_complete(self) -> bool:
        """Whether the answer is a whole sentence of the grammar that nothing can be added to."""
        return self._matcher.is_stopped() and not self._matcher.is_error()


class Grammar:
    """Compiled once, for any number of answers."""

    __slots__ = ("_matcher", "_num_bytes")

    def __init__(self, matcher: LLMatcher, num_bytes: int) -> None:
        """`matcher`: at the grammar's beginning; nobody else moves it."""
        self._matcher = matcher
        self._num_bytes = num_bytes

    def start(self) -> Matcher:
        """A matcher at the beginning."""
        return Matcher(self._matcher.deep_copy(), self._num_bytes)


def failure(matcher: LLMatcher) -> GrammarError:
    """What a matcher that is in error says."""
    return in_one_sentence(matcher.get_error())


def in_one_sentence(error: str) -> GrammarError:
    """What llguidance says, without the grammar's own text."""
    lines = [line.strip() for line in error.partition("<non-verbose/>")[0].splitlines()]
    message = " ".join(line for line in lines if line and not _quotes_source(line))
    return GrammarError(_shorten(message) or "nothing can follow")


def _quotes_source(line: str) -> bool:
    """Lines such as `12 | start: "a"` and the caret below them."""
    return line == "^" or line.partition(" | ")[0].isdigit()


def _shorten(message: str, limit: int = 400) -> str:
    return message if len(message) <= limit else f"{message[:limit]}…"
