"""Lists of sequences in their order."""

from bisect import bisect_left, insort
from operator import attrgetter

from penstock.router.scheduling.sequence import Sequence

by_order = attrgetter("order")


def put_in(sequences: list[Sequence], sequence: Sequence) -> None:
    """Puts a sequence in its place."""
    insort(sequences, sequence, key=by_order)


def take_out(sequences: list[Sequence], sequence: Sequence) -> None:
    """Takes a sequence out, which is one of them. Looks at few others, for thousands may wait."""
    place = bisect_left(sequences, sequence.order, key=by_order)
    while sequences[place] is not sequence:  # the beams of a search have one place
        place += 1
    del sequences[place]
