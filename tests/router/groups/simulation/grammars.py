"""Grammars whose every token depends on its place alone."""

from collections.abc import Sequence

from penstock.router.grammar.matcher import GrammarError
from tests.router.groups.simulation.oracle import ALL, PLAIN, VOCAB

_HALVES = tuple(sum(1 << token_id for token_id in range(PLAIN, VOCAB) if token_id % 2 == half) for half in (0, 1))


class PlaceGrammar:
    """Ends after `length` tokens. Every fourth is forced, the others may be even ones, or odd ones, in turns."""

    num_free = 0                         # it binds an answer from its first token on

    def __init__(self, kind: int, length: int) -> None:
        self.kind = kind
        self.length = length
        self.num_free = 0

    def allowed(self, place: int) -> int:
        """Returns the set of the tokens that may be there, as bits."""
        if place >= self.length:
            return ALL
        if (place + self.kind) % 4 == 3:
            return 1 << PLAIN + (place + self.kind) % 8
        return _HALVES[(place + self.kind) % 2]

    def start(self) -> "PlaceMatcher":
        return PlaceMatcher(self)


class PlaceMatcher:
    """Follows one answer."""

    def __init__(self, grammar: PlaceGrammar) -> None:
        self._grammar = grammar
        self._place = 0

    def push(self, token_id: int) -> None:
        if not self._grammar.allowed(self._place) >> token_id & 1:
            raise GrammarError(f"{token_id} is not allowed at {self._place}")
        self._place += 1

    def masks(self, drafts: Sequence[int] = ()) -> bytes:
        return b"".join(self._grammar.allowed(self._place + ahead).to_bytes(VOCAB // 8, "little")
                        for ahead in range(1 + len(drafts)))

    def forced(self, most: int, takes_longest: bool = True) -> list[int]:
        forced: list[int] = []
        while len(forced) < most and (allowed := self._grammar.allowed(self._place + len(forced))).bit_count() == 1:
            forced.append(allowed.bit_length() - 1)
        return forced

    @property
    def is_complete(self) -> bool:
        return self._place == self._grammar.length
