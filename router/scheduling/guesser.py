"""Guesses of how a sequence goes on, as the scheduler asks for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

PROPOSED = -1
"""Stands for a guess that the shards' draft model makes."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """Guesses other than those that a row has. The first `num_shared` are the same; `share` is how likely the one after
    them is, if those are right."""

    token_ids: list[int]
    num_shared: int
    share: float

    def expected(self, share: float) -> float:
        """Returns how many tokens it yields that the row would not, on average, if each guess is right with `share`."""
        return self.share * sum(share ** index for index in range(self.num_shared, len(self.token_ids)))


class Guesser(Protocol):
    """The guesses of a sequence, as the scheduler asks for them. Nothing of an answer depends on them but its speed."""

    def note(self, token_id: int) -> None:
        """Takes in that a token was appended to the sequence."""

    def force(self, token_ids: Sequence[int]) -> None:
        """Takes in that the sequence's grammar allows nothing but the text of these tokens next."""

    def guess(self, number: int) -> tuple[list[int], float]:
        """Returns up to `number` tokens that may come next, and how likely each is, if those before it were right. All
        may be PROPOSED."""

    def alternative(self, number: int) -> Alternative | None:
        """Returns other tokens that may come next than the first `number` of `guess`, if there are any."""

    def judge(self, number: int, num_right: int) -> None:
        """Takes in that of so many proposals the first `num_right` were right. Their tokens are noted after that."""
