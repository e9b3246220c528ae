"""Where one answer is in its grammar, and what the grammar says there."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.router.grammar.matcher import Grammar, GrammarError, Matcher
from penstock.router.scheduling.confirmed import Sampled
from penstock.router.scheduling.finish_reason import FinishReason

log = logging.getLogger(__name__)

_MOST_MISSES = 2


@dataclass(frozen=True, slots=True)
class MaskResult:
    """The verdict of a sequence's grammar about the token that came (`sampled`), or about the next tokens (`masks`).

    `error` takes the place of either. If the grammar ends with the token, `sampled` has a finish reason, and no mask
    follows. `forced` are the tokens of the text that must come next, if they were asked for.
    """

    sequence_id: int
    sampled: Sampled | None = None
    masks: bytes | None = None
    error: str | None = None
    forced: tuple[int, ...] = ()


class GrammarCursor:
    """Follows one answer through its grammar. `output_so_far` is shown to a matcher when one is first needed, and so
    are tokens that may be any. It tells up to `most_forced` of the tokens that the grammar forces."""

    def __init__(
        self, sequence_id: int, grammar: Grammar, output_so_far: Sequence[int] = (), most_forced: int = 0
    ) -> None:
        self.sequence_id = sequence_id
        self._most_forced = most_forced
        self._forced: Sequence[int] = ()
        self._takes_longest = True
        self._num_misses = 0
        self._grammar = grammar
        self._unseen = [*output_so_far]
        """The tokens that the matcher has not seen."""
        self._num_free = grammar.num_free - len(output_so_far)
        self._matcher: Matcher | None = None
        self._is_over = False

    def skip(self, token_id: int) -> bool:
        """Notes the answer's next token if it may be any; tells whether it may. Then it needs no look at the grammar.
        """
        if self._num_free <= 0:
            return False
        self._num_free -= 1
        self._unseen.append(token_id)
        return True

    def advance(self, sampled: Sampled) -> MaskResult:
        """Moves past the answer's next token, unless it is the last. Returns an error as a result instead of raising
        it."""
        if sampled.finish_reason is not None:
            return MaskResult(self.sequence_id, sampled)
        try:
            matcher = self._start()
            matcher.push(sampled.token_id)
            self._is_over = matcher.is_complete
            if self._most_forced:
                self._force(matcher, sampled.token_id)
        except Exception as error:
            return self._fail(error)
        if self._is_over:
            sampled = sampled._replace(finish_reason=FinishReason.EOS_TOKEN)
        return MaskResult(self.sequence_id, sampled, forced=tuple(self._forced))

    def masks(self, drafts: Sequence[int] = ()) -> MaskResult:
        """Computes which tokens may come next, and which after each of the drafts. Returns an error as a result instead
        of raising it."""
        try:
            return MaskResult(self.sequence_id, masks=None if self._is_over else self._start().masks(drafts))
        except Exception as error:
            return self._fail(error)

    def _force(self, matcher: Matcher, token_id: int) -> None:
        """Works out the tokens that are forced behind `token_id`. A model that keeps spelling forced texts with other
        tokens than was guessed is thought to prefer the shortest ones, or the longest again."""
        if self._forced:
            self._num_misses = 0 if self._forced[0] == token_id else self._num_misses + 1
            if self._num_misses == _MOST_MISSES:
                self._takes_longest, self._num_misses = not self._takes_longest, 0
        self._forced = () if self._is_over else matcher.forced(self._most_forced, self._takes_longest)

    def _start(self) -> Matcher:
        if self._matcher is None:
            self._matcher = self._grammar.start()
        for token_id in self._unseen:
            self._matcher.push(token_id)
        self._unseen.clear()
        return self._matcher

    def _fail(self, error: Exception) -> MaskResult:
        self._is_over = True
        return failed(self.sequence_id, error)


def failed(sequence_id: int, error: Exception) -> MaskResult:
    """Returns the result that tells of an error."""
    if isinstance(error, GrammarError):
        return MaskResult(sequence_id, error=str(error))
    log.error("request %d failed in its grammar", sequence_id, exc_info=error)
    return MaskResult(sequence_id, error=f"{type(error).__name__} in the grammar")
