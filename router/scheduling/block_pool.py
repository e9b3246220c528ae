"""The KV blocks of a group: which are free, and how many holders each of the others has."""

from collections.abc import Iterable


class BlockPool:
    """Counts the holders of each block; nobody else writes these counts. Block ids are 0 … num_blocks - 1."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._counts = [0] * num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def count(self, block: int) -> int:
        """Returns how many holders the block has."""
        return self._counts[block]

    def allocate(self, number: int) -> list[int]:
        """Takes `number` free blocks, each held once. The caller has made sure that so many are free."""
        assert 0 <= number <= len(self._free), f"{number} blocks asked of {len(self._free)} free ones"
        blocks = [self._free.pop() for _ in range(number)]
        for block in blocks:
            self._counts[block] = 1
        return blocks

    def hold(self, blocks: Iterable[int]) -> None:
        """Adds a holder to each of the blocks, none of which is free."""
        counts = self._counts
        for block in blocks:
            assert counts[block] > 0, f"block {block} is free, so what it holds is gone"
            counts[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """Takes one holder from each of the blocks; a block without holders is free."""
        counts = self._counts
        for block in blocks:
            assert counts[block] > 0, f"block {block} is released but nobody holds it"
            counts[block] -= 1
            if not counts[block]:
                self._free.append(block)
