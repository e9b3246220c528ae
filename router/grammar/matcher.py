"""A grammar and the matcher that follows an answer through it, of whichever kind both are."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol


class GrammarError(Exception):
    """Raised when a grammar can't be compiled or can't be followed any further; the message says why."""


class Matcher(Protocol):
    """Holds the state of one answer in its grammar, which follows from the answer's tokens alone."""

    def push(self, token_id: int) -> None:
        """Takes the next token, which the mask allowed. Raises GrammarError if a limit on the grammar's work is met."""

    def mask(self) -> bytes | None:
        """Returns which tokens may come next: a bit for each one, the lowest bit of little-endian uint32 words first.
        None if all may, which costs nothing to send.

        An end-of-sequence token is among them where the answer may end. Other threads run meanwhile. Raises
        GrammarError if a limit on the grammar's work is met.
        """

    def masks(self, drafts: Sequence[int] = ()) -> bytes | None:
        """Returns the masks of the next token and of those after each of the drafts, one after the other; None if all
        tokens may come at each place. Behind a draft that may not come, and behind the grammar's end, all may: nothing
        of what is sampled there counts.

        Raises GrammarError for the next token's mask, as `mask` does. A limit that is met behind a draft ends the masks
        there: if the draft is right, the answer fails when it comes.
        """

    def copy(self) -> "Matcher":
        """Returns a matcher that goes on from here by itself: not every grammar can go back."""

    def forced(self, most: int, takes_longest: bool = True) -> list[int]:
        """Returns up to `most` tokens of the text that must come next; often there are none. Of the tokens that begin
        that text it takes the longest, as a model would that has learnt such texts, or else the shortest."""

    @property
    def is_complete(self) -> bool:
        """Whether the answer satisfies the grammar and nothing can be added to it."""


class Grammar(Protocol):
    """A grammar that is compiled once, for any number of answers."""

    @property
    def num_free(self) -> int:
        """How many tokens may be any at the beginning of each answer, so that nobody asks for their masks."""

    def start(self) -> Matcher:
        """Returns a new matcher at the grammar's beginning."""


def allows(mask: bytes, token_id: int) -> bool:
    """Tells whether a mask has the bit of a token."""
    return bool(mask[token_id // 8] >> token_id % 8 & 1)


def masks_along(matcher: Matcher, drafts: Sequence[int], everything: bytes, ends: int = 0) -> bytes | None:
    """Returns the masks that `Matcher.masks` promises. `everything` is the mask of all tokens, and `ends` are those, as
    bits, behind which the answer is over, even if the matcher does not know."""
    masks = [matcher.mask()]
    with suppress(GrammarError):
        ahead = matcher.copy() if drafts else matcher
        for draft in drafts:
            if (mask := masks[-1]) is not None and not allows(mask, draft):
                break
            ahead.push(draft)
            if ahead.is_complete or ends >> draft & 1:
                break
            masks.append(ahead.mask())
    masks += [None] * (1 + len(drafts) - len(masks))
    return b"".join(mask or everything for mask in masks) if any(masks) else None
