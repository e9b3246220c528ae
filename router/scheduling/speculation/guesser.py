"""Guesses how one sequence goes on, and follows how often that is right."""

from collections.abc import Sequence

from penstock.router.scheduling.guesser import PROPOSED, Alternative
from penstock.router.scheduling.speculation.lookup import Lookup

FIRST_OTHER = 0.1
"""The share of alternatives whose own first token is right, that a sequence begins with."""
LEAST_OTHER = 0.05
"""Of a sequence whose alternatives are right more seldom, none is looked for."""
FIRST = 0.5
"""The share of right guesses that a sequence begins with."""
HOPE = 0.7
"""The share of right proposals of the draft model that is expected before any was verified, and comes back in time."""
COMMON_WEIGHT = 0.02
"""Of the newest proposal in the share that sequences begin with."""
RETURN = 0.01
"""The part of the way there that a token without proposals goes."""
WEIGHT = 0.15
"""Of the newest guess in that share."""


class LookupGuesser:
    """Guesses the tokens that a grammar forces, or those that followed the last tokens before: that of the two which
    was right more often, if both have something to say.

    Each token that comes is compared with the guesses for it, also while none is verified: so a sequence whose guesses
    are right is known before any step was spent on it.
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        """`tokens` is the sequence's own list."""
        self._lookup = Lookup(tokens)
        self._forced: list[int] = []
        self._found_share = self._forced_share = FIRST
        self._other_share = FIRST_OTHER

    def note(self, token_id: int) -> None:
        if self._forced:
            is_right = self._forced[0] == token_id
            self._forced_share += WEIGHT * (is_right - self._forced_share)
            self._forced = self._forced[1:] if is_right else []
        if (expected := self._lookup.next_token) is not None:
            self._found_share += WEIGHT * ((expected == token_id) - self._found_share)
        if (other := self._lookup.note(token_id)) is not None:
            self._other_share += WEIGHT * ((other == token_id) - self._other_share)

    def force(self, token_ids: Sequence[int]) -> None:
        self._forced = list(token_ids)

    def guess(self, number: int) -> tuple[list[int], float]:
        found = self._lookup.expected(number)
        if self._forced and (not found or self._forced_share >= self._found_share):
            return self._forced[:number], self._forced_share
        return found, self._found_share

    def alternative(self, number: int) -> Alternative | None:
        """None, while a grammar forces tokens."""
        if self._forced or self._other_share < LEAST_OTHER or not (other := self._lookup.alternative(number)):
            return None
        place, token_ids = other
        return Alternative(self._lookup.expected(place) + token_ids, place, self._other_share)

    def judge(self, number: int, num_right: int) -> None:
        """Nothing follows for what is guessed here."""


class Share:
    """The share of right guesses, of which the newest weigh most."""

    def __init__(self, value: float, weight: float) -> None:
        self.value = value
        self._weight = weight

    def judge(self, number: int, num_right: int) -> None:
        """Takes in that of so many guesses in a row the first `num_right` were right. Those behind a wrong one tell
        nothing."""
        for _ in range(num_right):
            self.value += self._weight * (1.0 - self.value)
        if num_right < number:
            self.value -= self._weight * self.value

    def hope(self) -> None:
        """Comes a part of the way back to where all begin."""
        self.value += RETURN * (HOPE - self.value)


class DraftedGuesser:
    """Guesses tokens that were there before, or lets the draft model propose, whichever was right more often.

    The share of right proposals begins as other sequences' is of late, and is known only while some are verified. So it
    comes back, slowly, to what was hoped: what was not worth it for a while is tried again.
    """

    def __init__(self, tokens: Sequence[int], context_length: int, common: Share | None = None) -> None:
        """`tokens` is the sequence's own list, `context_length` how many of a sequence the draft model takes, `common`
        the share of all sequences."""
        self._tokens = tokens
        self._context_length = context_length
        self._others = LookupGuesser(tokens)
        self._common = common or common_share()
        self._share = Share(self._common.value, WEIGHT)
        self._num_judged = 0

    def note(self, token_id: int) -> None:
        self._others.note(token_id)
        if self._num_judged:
            self._num_judged -= 1
        else:
            self._share.hope()

    def force(self, token_ids: Sequence[int]) -> None:
        self._others.force(token_ids)

    def guess(self, number: int) -> tuple[list[int], float]:
        found, share = self._others.guess(number)
        room = min(number, self._context_length - len(self._tokens))
        if room <= 0 or (found and share >= self._share.value):
            return found, share
        return [PROPOSED] * room, self._share.value

    def alternative(self, number: int) -> Alternative | None:
        """None: the shards keep what the draft model has taken in by slot, and an alternative has another slot."""
        return None

    def judge(self, number: int, num_right: int) -> None:
        self._share.judge(number, num_right)
        self._common.judge(number, num_right)
        self._num_judged = num_right + 1


def common_share() -> Share:
    """Returns the share that all sequences of an engine have in common."""
    return Share(HOPE, COMMON_WEIGHT)
