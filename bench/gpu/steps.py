"""Steps as a router sends them: prompts cut to the token budget, then a token for each sequence."""

from collections.abc import Iterator

import numpy as np

from penstock.shard.execution.step import Ids, Row, Step
from tests.shard.step_programs import initial, make_row

FIRST_ID = 3                             # behind the special tokens


def prompts(number: int, length: int, vocab_size: int) -> list[Ids]:
    """The same ones wherever they are asked for."""
    return [np.random.default_rng(index).integers(FIRST_ID, vocab_size, length) for index in range(number)]


class Sequences:
    """Greedy sequences of one length in slots of their own, whose blocks lie about at random."""

    def __init__(self, all_prompts: list[Ids], new: int, block_size: int, num_blocks: int) -> None:
        self.prompts = all_prompts
        self.length = len(all_prompts[0])
        self.end = self.length + new
        self._block_size = block_size
        self.blocks_each = -(-self.end // block_size)
        needed = len(all_prompts) * self.blocks_each
        if needed > num_blocks:
            raise ValueError(f"{len(all_prompts)} sequences of {self.end} tokens need {needed} blocks, "
                             f"there are {num_blocks}")
        blocks = np.random.default_rng(0).permutation(num_blocks)[:needed].astype(np.int32)
        self._blocks = blocks.reshape(len(all_prompts), self.blocks_each)

    def prompt_steps(self, budget: int) -> Iterator[Step]:
        """Prompt after prompt; a step takes as many of their tokens as the budget allows, of the last one a part."""
        rows: list[Row] = []
        left = budget
        for slot in range(len(self.prompts)):
            start = 0
            while start < self.length:
                count = min(left, self.length - start)
                rows.append(self._prompt_row(slot, start, start + count))
                start, left = start + count, left - count
                if left == 0:
                    yield Step(0, (), tuple(rows))
                    rows, left = [], budget
        if rows:
            yield Step(0, (), tuple(rows))

    def decode_steps(self) -> Iterator[Step]:
        """The last token sampled is never an input."""
        for position in range(self.length, self.end - 1):
            yield Step(0, (), tuple(
                make_row(slot, position, from_last_sample=True, new_blocks=self._new_blocks(slot, position,
                                                                                            position + 1))
                for slot in range(len(self.prompts))))

    def _prompt_row(self, slot: int, start: int, end: int) -> Row:
        return make_row(slot, start, self.prompts[slot][start:end], new_blocks=self._new_blocks(slot, start, end),
                        is_sampled=end == self.length, initial_state=initial(self.length) if start == 0 else None)

    def _new_blocks(self, slot: int, start: int, end: int) -> list[int]:
        """Those that positions from `start` to `end` are the first to need."""
        first, last = -(-start // self._block_size), -(-end // self._block_size)
        return [int(block) for block in self._blocks[slot, first:last]]
