"""Where the sums over a coded weight's inputs are cut."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """The inputs [begin, end) of a weight, which share a group and a segment."""

    begin: int
    end: int
    group: int                           # counted from the weight's first
    segment: int


def cut(start: int, inputs: int, group: int, segments: int) -> list[Piece]:
    """Cuts the inputs of a weight that has them from `start` on of the whole: at each multiple of the group's size,
    counted in the whole, and at each segment's end. So a rank's pieces are those of the whole weight."""
    width = inputs // segments
    pieces = []
    for segment in range(segments):
        begin, last = segment * width, (segment + 1) * width
        while begin < last:
            end = min(last, (start + begin) // group * group + group - start)
            pieces.append(Piece(begin, end, (start + begin) // group - start // group, segment))
            begin = end
    return pieces
