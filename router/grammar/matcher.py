"""A compiled grammar, and where in it an answer is: what the engine knows of structured output."""

from typing import Protocol


class Matcher(Protocol):
    """The state of one answer. It follows from the answer's tokens alone."""

    def push(self, token_id: int) -> None:
        """Take the next token, one that the mask allowed. GrammarError if it can't go on: a limit was met."""

    def mask(self) -> bytes:
        """What may come next: a bit for each token of the vocabulary, the lowest of little-endian uint32 words first.

        GrammarError if a limit on the grammar's work was met.
        """

    @property
    def is_complete(self) -> bool:
        """Whether the answer is a whole sentence of the grammar that nothing can be added to."""


class Grammar(Protocol):
    """Compiled once, for any number of answers."""

    def start(self) -> Matcher:
        """A matcher at the beginning."""


class GrammarError(Exception):
    """A grammar can't be compiled, or can't be followed any further; the message says why."""
