"""Which inputs of a row-parallel sum each rank has, and where it cuts them.

The inputs are cut into 8 segments, whose sums meet in a binary tree: where ranks own whole subtrees of it, the sum has
the same bits on any number of them.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

NUM_SEGMENTS = 8
UNIT = 128                               # inputs that mostly share their scales in quantised weights


@dataclass(frozen=True, slots=True)
class OwnInputs:
    """The inputs of one rank. Those of each segment are summed apart; the sums of empty ones are zeros."""

    segments: tuple[slice, ...]          # one behind the other; a power of two of them

    @property
    def part(self) -> slice:
        return slice(self.segments[0].start, self.segments[-1].stop)

    @property
    def lengths(self) -> list[int]:
        return [segment.stop - segment.start for segment in self.segments]

    @property
    def is_empty(self) -> bool:
        return not any(self.lengths)


def dealt_out(count: int, rank: int, world_size: int) -> slice:
    """Returns which of so many things a rank has: they are dealt out in their order, and as evenly as can be."""
    return slice(rank * count // world_size, (rank + 1) * count // world_size)


def inner_inputs(length: int, rank: int, world_size: int) -> OwnInputs:
    """Returns a rank's part of an inner width, which may be cut anywhere: of the 8 segments, the last of which may be
    shorter, whole ones; where they cannot be dealt out, whole units, and no bits are promised."""
    if NUM_SEGMENTS % world_size == 0:
        width, own = -(-length // NUM_SEGMENTS), NUM_SEGMENTS // world_size
        cuts = (min(number * width, length) for number in range(rank * own, (rank + 1) * own + 1))
        return OwnInputs(tuple(slice(begin, end) for begin, end in pairwise(cuts)))
    unit = length // world_size if length % world_size == 0 else math.gcd(length, UNIT)
    while length // unit < world_size and unit % 2 == 0:
        unit //= 2
    own_units = dealt_out(length // unit, rank, world_size)
    return OwnInputs((slice(own_units.start * unit, own_units.stop * unit),))


def inputs_of_heads(part: slice, length: int, rank: int, world_size: int) -> OwnInputs:
    """Returns a rank's inputs where heads say which these are: cut into segments if they are whole ones."""
    own = inner_inputs(length, rank, world_size)
    return own if own.part == part and length % NUM_SEGMENTS == 0 else OwnInputs((part,))
