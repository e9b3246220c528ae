"""Stop strings: where an answer ends, wherever in a token that is. Pure."""

from collections.abc import Sequence


class StopMatcher:
    """Looks for the first stop string that completes in a text that comes in pieces.

    Keeps no more of the text than the longest stop string is long, so a match may span any number of pieces.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._reach = max(map(len, self._stops), default=0) - 1
        self._tail = ""

    def push(self, piece: str) -> int | None:
        """How much of `piece` belongs to the text that ends with a stop string; None while none is complete.

        Of several, the one that ends first counts. After a match the matcher is spent.
        """
        if not self._stops:
            return None
        window = self._tail + piece
        ends = [start + len(stop) for stop in self._stops if (start := window.find(stop)) >= 0]
        if ends:
            return min(ends) - len(self._tail)
        self._tail = window[-self._reach:] if self._reach else ""
        return None
