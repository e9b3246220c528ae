"""Guesses how one sequence goes on, and follows how often that is right."""

from collections.abc import Sequence
from typing import Protocol

from penstock.router.scheduling.speculation.lookup import Lookup

FIRST = 0.5
"""The share of right guesses that a sequence begins with."""
WEIGHT = 0.15
"""Of the newest guess in that share."""


class Guesser(Protocol):
    """What the scheduler wants of a sequence's guesses. Nothing of an answer depends on them but its speed."""

    def note(self, token_id: int) -> None:
        """Takes in that a token was appended to the sequence."""

    def force(self, token_ids: Sequence[int]) -> None:
        """Takes in that the sequence's grammar allows nothing but the text of these tokens next."""

    def guess(self, number: int) -> tuple[list[int], float]:
        """Returns up to `number` tokens that may come next, and how likely each is, if those before it were right."""


class LookupGuesser:
    """Guesses what a grammar forces, or what followed the last tokens before: that of the two which was right more
    often, if both have something to say.

    Each token that comes is compared with the guesses for it, also while none is verified: so a sequence whose guesses
    are right is known before any step was spent on it.
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        """`tokens` is the sequence's own list."""
        self._lookup = Lookup(tokens)
        self._forced: list[int] = []
        self._found_share = self._forced_share = FIRST

    def note(self, token_id: int) -> None:
        if self._forced:
            is_right = self._forced[0] == token_id
            self._forced_share += WEIGHT * (is_right - self._forced_share)
            self._forced = self._forced[1:] if is_right else []
        if (expected := self._lookup.next_token) is not None:
            self._found_share += WEIGHT * ((expected == token_id) - self._found_share)
        self._lookup.note(token_id)

    def force(self, token_ids: Sequence[int]) -> None:
        self._forced = list(token_ids)

    def guess(self, number: int) -> tuple[list[int], float]:
        found = self._lookup.expected(number)
        if self._forced and (not found or self._forced_share >= self._found_share):
            return self._forced[:number], self._forced_share
        return found, self._found_share
