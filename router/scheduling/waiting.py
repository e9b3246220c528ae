"""Those that wait to run."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from collections.abc import Sequence as Items

from penstock.router.scheduling.cached_block import Node
from penstock.router.scheduling.in_order import by_order, of_class, put_in, take_out
from penstock.router.scheduling.memory import KvMemory
from penstock.router.scheduling.sequence import Sequence
from penstock.router.scheduling.shares import Shares
from penstock.router.scheduling.waits import Waits


class Waiting(list[Sequence]):
    """The sequences that wait, in their order, with the number of tokens that they have left to compute. Thousands may
    wait, so none of its methods looks at each."""

    def __init__(self, memory: KvMemory, waits: Waits) -> None:
        super().__init__()
        self._memory = memory
        self.waits = waits
        self.shares = Shares()
        self._left = {False: 0, True: 0}
        """The tokens of those that are of the background, and of all others."""
        self.num_background = 0
        """How many are of the background."""
        self.adapters: Counter[int] = Counter()
        """The adapters of those that need one, each with how many do."""

    def add(self, sequence: Sequence) -> None:
        """Puts a sequence in its place, which is matched with no cached blocks yet."""
        assert sequence.matched is None
        put_in(self, sequence)
        if sequence.tenant or self.shares.is_on:
            self.shares.came(sequence, self)
        self.waits.begin(sequence)
        self._left[sequence.is_background] += len(sequence.tokens)
        self.num_background += sequence.is_background
        if sequence.adapter:
            self.adapters[sequence.adapter] += 1

    def num_before(self, sequence: Sequence) -> int:
        """Returns how many come before a sequence that is none of them yet."""
        return bisect_left(self, sequence.order, key=by_order)

    def take(self, sequence: Sequence) -> None:
        """Takes one of them out."""
        take_out(self, sequence)
        if self.shares.is_on:
            self.shares.left(sequence)
        self.waits.end(sequence)
        depth = sequence.matched.depth if sequence.matched else 0
        self._left[sequence.is_background] -= len(sequence.tokens) - depth * self._memory.block_size
        self.num_background -= sequence.is_background
        if sequence.adapter:
            self.adapters[sequence.adapter] -= 1
            if not self.adapters[sequence.adapter]:
                del self.adapters[sequence.adapter]

    def match(self, sequence: Sequence) -> Node:
        """Finds the cached blocks that one of them may begin with, and returns the last, as `KvMemory.match` does."""
        before = sequence.matched.depth if sequence.matched else 0
        matched = self._memory.match(sequence)
        self._left[sequence.is_background] -= (matched.depth - before) * self._memory.block_size
        return matched

    def extended(self, beam: Sequence) -> None:
        """Takes in that a beam, which is one of them, has one token more."""
        self._left[beam.is_background] += 1

    def in_turn(self, is_background: bool) -> Iterable[Sequence]:
        """Returns those of a class in the order in which they are to run."""
        return self.shares.in_turn(is_background) if self.shares.is_on else of_class(self, is_background)

    def queues(self) -> list[Items[Sequence]]:
        """Returns those that are not of the background, in their order: of each tenant by itself where tenants have
        shares or quotas, and with nothing behind them but the background."""
        return self.shares.queues() if self.shares.is_on else [self]

    def number(self, is_background: bool) -> int:
        """Returns how many are of the background, or how many are not."""
        return self.num_background if is_background else len(self) - self.num_background

    def num_left(self, is_background: bool) -> int:
        """Returns how many tokens are to be computed before one more that is of the background, or not. Those that are
        cached do not count."""
        return self._left[False] + (self._left[True] if is_background else 0)
