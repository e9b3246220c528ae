"""Knows which prefixes the sequences of a scheduler have, before anything of them is computed."""

from collections import Counter
from collections.abc import Iterator
from collections.abc import Sequence as Items


class LivePrefixes:
    """Counts the full blocks of prompts by what they and all blocks before them hold.

    The prefix cache knows a block once its result is back. Requests that come at the same time with the same prefix
    should nevertheless meet in one group, which computes it once.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._counts: Counter[int] = Counter()
        self._chains: dict[int, list[int]] = {}

    def add(self, sequence_id: int, namespace: str, tokens: Items[int]) -> None:
        """Counts the blocks of a sequence."""
        chain = self._chains[sequence_id] = [*self._chain(namespace, tokens)]
        self._counts.update(chain)

    def remove(self, sequence_id: int) -> None:
        """Counts the blocks of a sequence that has ended no more."""
        for key in self._chains.pop(sequence_id, ()):
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]

    def match(self, namespace: str, tokens: Items[int]) -> int:
        """Returns how many of the first blocks of `tokens` some sequence has, too. That two prefixes are taken for one
        is as likely as that two hashes of 64 bits are equal, and would cost time alone."""
        number = 0
        if self._counts:
            for key in self._chain(namespace, tokens):
                if key not in self._counts:
                    break
                number += 1
        return number

    def _chain(self, namespace: str, tokens: Items[int]) -> Iterator[int]:
        size, key = self._block_size, hash(namespace)
        for start in range(0, len(tokens) - size + 1, size):
            key = hash((key, *tokens[start:start + size]))
            yield key
