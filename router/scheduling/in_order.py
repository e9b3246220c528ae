"""Lists of sequences in their order."""

from bisect import bisect_left, insort
from collections.abc import Sequence as Items
from operator import attrgetter

from penstock.router.scheduling.sequence import Sequence

by_order = attrgetter("order")
_is_background = attrgetter("is_background")


def put_in(sequences: list[Sequence], sequence: Sequence) -> None:
    """Puts a sequence in its place."""
    insort(sequences, sequence, key=by_order)


def take_out(sequences: list[Sequence], sequence: Sequence) -> None:
    """Takes a sequence out, which is one of them. Looks at few others, for thousands may wait."""
    place = bisect_left(sequences, sequence.order, key=by_order)
    while sequences[place] is not sequence:  # the beams of a search have one place
        place += 1
    del sequences[place]


def has_background(sequences: Items[Sequence]) -> bool:
    """Tells whether any of these, in their order, is of the background."""
    return bool(sequences) and sequences[-1].is_background


def of_class(sequences: Items[Sequence], is_background: bool) -> list[Sequence]:
    """Returns those of these, in their order, that are of the background, or all others."""
    first = bisect_left(sequences, True, key=_is_background) if has_background(sequences) else len(sequences)
    return [*(sequences[first:] if is_background else sequences[:first])]
