"""Makes the guessers of requests' next tokens."""

from collections.abc import Sequence

from penstock.router.engine.request import Request
from penstock.router.scheduling.death_record import DeathRecord
from penstock.router.scheduling.guesser import Guesser
from penstock.router.scheduling.speculation.guesser import DraftedGuesser, LookupGuesser, common_share
from penstock.router.scheduling.suspects import MAX_DEATHS_GUESSING


class Guessers:
    """Makes a guesser for each request. `draft_context` is how many tokens the group's draft model takes, 0 if it has
    none; with `is_on` unset nothing is guessed."""

    def __init__(self, is_on: bool, draft_context: int) -> None:
        self._is_on = is_on
        self._draft_context = draft_context
        self._proposals_right = common_share()

    def of(self, request: Request, tokens: Sequence[int], record: DeathRecord) -> Guesser | None:
        """Returns the guesser of the tokens that follow `tokens`; None if nothing is to be guessed. Proposals of the
        draft model can't be masked by a grammar."""
        if not self._is_on or record.num_deaths_guessing >= MAX_DEATHS_GUESSING:
            return None
        if self._draft_context and request.grammar is None:
            return DraftedGuesser(tokens, self._draft_context, self._proposals_right)
        return LookupGuesser(tokens)
