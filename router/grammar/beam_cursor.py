"""Where one beam of a search is in its grammar."""

from collections.abc import Sequence
from typing import Self

from penstock.router.grammar.cursor import MaskResult, failed
from penstock.router.grammar.matcher import Grammar, Matcher


class BeamCursor:
    """Stands behind some tokens of an answer. Other cursors follow it, one for each token that a beam goes on with.

    Nothing is computed before a mask is asked for, in whichever thread that is. Where the grammar has come to its end,
    a mask allows an end token alone.
    """

    def __init__(self, sequence_id: int, grammar: Grammar, output: Sequence[int] = ()) -> None:
        self.sequence_id = sequence_id
        self._grammar = grammar
        self._behind: Sequence[int] = output
        """The tokens that the matcher, or that of `_before`, has not seen."""
        self._before: BeamCursor | None = None
        self._matcher: Matcher | None = None

    def follow(self, sequence_id: int, token_id: int) -> Self:
        """Returns the cursor behind one more token, for a sequence that may be another one."""
        cursor = type(self)(sequence_id, self._grammar, (token_id,))
        cursor._before = self
        return cursor

    def masks(self, drafts: Sequence[int] = ()) -> MaskResult:
        """Computes which tokens may come next; a beam has no drafts. Returns an error as a result instead of raising
        it."""
        try:
            return MaskResult(self.sequence_id, masks=self._find().masks(drafts))
        except Exception as error:
            return failed(self.sequence_id, error)

    def _find(self) -> Matcher:
        if self._matcher is None:
            matcher = self._grammar.start() if self._before is None else self._before._find().copy()
            for token_id in self._behind:
                matcher.push(token_id)
            self._matcher, self._before = matcher, None
        return self._matcher
