"""Where one answer is in its grammar, and what the grammar says there."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.router.grammar.matcher import Grammar, GrammarError, Matcher
from penstock.router.scheduling.plan import FinishReason, Sampled

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MaskResult:
    """What a sequence's grammar says about the token that came (`sampled`), or about the next token (`mask`).

    `error` takes the place of either. If the grammar ends with the token, `sampled` has a finish reason, and no mask
    follows.
    """

    sequence_id: int
    sampled: Sampled | None = None
    mask: bytes | None = None
    error: str | None = None


class GrammarCursor:
    """Follows one answer through its grammar. `output_so_far` is fed to a matcher when one is first needed."""

    def __init__(self, sequence_id: int, grammar: Grammar, output_so_far: Sequence[int] = ()) -> None:
        self.sequence_id = sequence_id
        self._grammar = grammar
        self._output_so_far = output_so_far
        self._matcher: Matcher | None = None
        self._is_over = False

    def advance(self, sampled: Sampled) -> MaskResult:
        """Moves past the answer's next token. Returns an error as a result instead of raising it."""
        try:
            matcher = self._start()
            matcher.push(sampled.token_id)
            self._is_over = matcher.is_complete
        except Exception as error:
            return self._fail(error)
        return MaskResult(
            self.sequence_id, replace(sampled, finish_reason=FinishReason.EOS_TOKEN) if self._is_over else sampled)

    def mask(self) -> MaskResult:
        """Computes which tokens may come next. Returns an error as a result instead of raising it."""
        try:
            return MaskResult(self.sequence_id, mask=None if self._is_over else self._start().mask())
        except Exception as error:
            return self._fail(error)

    def _start(self) -> Matcher:
        if self._matcher is None:
            self._matcher = self._grammar.start()
            for token_id in self._output_so_far:
                self._matcher.push(token_id)
        return self._matcher

    def _fail(self, error: Exception) -> MaskResult:
        self._is_over = True
        if isinstance(error, GrammarError):
            return MaskResult(self.sequence_id, error=str(error))
        log.error("request %d failed in its grammar", self.sequence_id, exc_info=error)
        return MaskResult(self.sequence_id, error=f"{type(error).__name__} in the grammar")
