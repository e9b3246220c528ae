"""Looks up how a sequence went on when its last tokens came before (prompt lookup decoding, Saxena 2023)."""

from array import array
from collections.abc import Sequence

LONG, SHORT = 4, 2
"""How many of the last tokens are looked for, at first and then."""
MAX_INDEXED = 512
"""How many positions one call takes into the index, so that a long prompt holds no step up."""
_ROOM = 4
"""Places in the table for each position, at the beginning; half as many before it grows."""
_SMALLEST = 256
_MULTIPLIER = 0x9E3779B1
_MASK = 2**32 - 1


class Lookup:
    """Follows `tokens`, to which others append, and copies what followed the last occurrence of their end.

    The index is a table of hashes, 12 to 36 bytes for a token, in which a later position takes the place of an earlier
    one of the same hash: what is found is compared before it is believed. A table that has become too small is begun
    anew, and filled again as it was: part by part.
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens = tokens
        self._num_indexed = LONG
        self._table = self._empty()
        self._before = array("i", [0] * LONG)
        """For each position in the index the one whose place it took."""
        self._next = 0
        """The position whose token is expected next; 0 if nothing is."""

    def note(self, token_id: int) -> int | None:
        """Takes in that `token_id` was appended. Goes on with the same occurrence while it is right.

        Returns the token that `alternative` would have had in its place, if it had one.
        """
        expected = self.next_token
        other = 0 if expected is None else self._other(self._tokens, len(self._tokens) - 1, expected)
        self._index()
        self._next = self._next + 1 if expected == token_id else self._find()
        return self._tokens[other] if other else None

    @property
    def next_token(self) -> int | None:
        """The token that is expected next, if one is."""
        return self._tokens[self._next] if self._next else None

    def expected(self, number: int) -> list[int]:
        """Returns up to `number` tokens that are expected next. One that repeats what it copies goes round."""
        if not self._next:
            return []
        copied = list(self._tokens[self._next:self._next + number])
        period = len(self._tokens) - self._next
        while len(copied) < number:
            copied.append(copied[len(copied) - period])
        return copied

    def alternative(self, number: int) -> tuple[int, list[int]] | None:
        """Returns another way on, if there is one: the place among the next `number` tokens where it parts from those
        that are expected, and its tokens from there on. They followed the same LONG tokens."""
        tokens, expected = self._tokens, self.expected(number)
        recent = [*tokens[len(tokens) - LONG:], *expected]
        for place, token_id in enumerate(expected):
            if position := self._other(recent, place + LONG, token_id):
                return place, list(tokens[position:position + len(expected) - place])
        return None

    def _other(self, context: Sequence[int], end: int, token_id: int) -> int:
        """Returns where another token than `token_id` followed the LONG tokens before `end` of `context`: the last time
        or that before it. 0 if none did."""
        tokens, wanted = self._tokens, context[end - LONG:end]
        position = self._table[_hashes(context, end)[0] & len(self._table) - 1]
        for earlier in (True, False):
            if position and tokens[position] != token_id and tokens[position - LONG:position] == wanted:
                return position
            position = self._before[position] if position and earlier else 0
        return 0

    def _index(self) -> None:
        """Notes for more positions that they follow the tokens before them: for all but the last, which follows
        nothing yet, in the end."""
        tokens = self._tokens
        if 2 * len(tokens) > len(self._table):
            self._table, self._num_indexed = self._empty(), LONG
            del self._before[LONG:]
        end = min(len(tokens), self._num_indexed + MAX_INDEXED)
        table, mask, before = self._table, len(self._table) - 1, self._before
        for position in range(self._num_indexed, end):
            long, short = _hashes(tokens, position)
            before.append(table[long & mask])
            table[long & mask] = table[short & mask] = position
        self._num_indexed = max(self._num_indexed, end)

    def _empty(self) -> "array[int]":
        """Makes an empty table with room for more tokens than there are."""
        size = _SMALLEST
        while size < _ROOM * len(self._tokens):
            size *= 2
        return array("i", bytes(4 * size))

    def _find(self) -> int:
        """Returns the position after an earlier occurrence of the last tokens, or 0."""
        tokens, end = self._tokens, len(self._tokens)
        if end < LONG:
            return 0
        table, mask = self._table, len(self._table) - 1
        long, short = _hashes(tokens, end)
        position = table[long & mask]
        if position and tokens[position - LONG:position] == tokens[end - LONG:end]:
            return position
        position = table[short & mask]
        if position and tokens[position - SHORT:position] == tokens[end - SHORT:end]:
            return position
        return 0


def _hashes(tokens: Sequence[int], end: int) -> tuple[int, int]:
    """Returns a hash of the LONG tokens before position `end`, and one of the SHORT."""
    first, second, third, fourth = tokens[end - LONG:end]
    short = (third * _MULTIPLIER ^ fourth) * _MULTIPLIER & _MASK
    return ((first * _MULTIPLIER ^ second) * _MULTIPLIER ^ short) * _MULTIPLIER >> 7 & _MASK, short >> 7
