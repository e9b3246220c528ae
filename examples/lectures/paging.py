"""Paged keys and values (Kwon et al. 2023): blocks in place of one long piece, and how much memory stays empty.

    python examples/lectures/paging.py

A sequence's keys and values lie in blocks of some tokens, anywhere in the memory; its block table says where. So only
the end of its last block is empty, and sequences with the same beginning share blocks. Memory in one piece has to be
reserved for the longest text that a sequence may become.
"""

import random
from dataclasses import dataclass, field

from penstock.bench.batching.drive import Drive, Request, Shape
from penstock.bench.batching.timelines import Paper
from penstock.bench.batching.waste import Waste
from penstock.router.scheduling.block_pool import BlockPool

LIMIT = 512
"""The most tokens of an answer, which few come near to."""


@dataclass
class Text:
    """A text that grows, and its block table."""

    pool: BlockPool
    block_size: int
    tokens: str = ""
    blocks: list[int] = field(default_factory=list)

    def write(self, tokens: str) -> None:
        """Puts each token, here a letter, into the next place; a block is taken when it is needed."""
        for token in tokens:
            if len(self.tokens) % self.block_size == 0:
                self.blocks += self.pool.allocate(1)
            self.tokens += token

    def fork(self) -> "Text":
        """Returns a text that goes on from here. It shares the blocks that are full, and has a copy of the last."""
        full = len(self.tokens) // self.block_size
        self.pool.hold(self.blocks[:full])
        other = Text(self.pool, self.block_size, self.tokens[: full * self.block_size], self.blocks[:full])
        other.write(self.tokens[full * self.block_size:])
        return other

    def place(self, position: int) -> tuple[int, int]:
        """Returns the block and the place in it that have the token at a position."""
        return self.blocks[position // self.block_size], position % self.block_size


def waste(block_size: int, number: int = 100, seed: int = 0) -> Waste:
    """Returns how much is empty while the scheduler answers so many requests of chance."""
    chance = random.Random(seed)
    requests = [Request(4 * index, tuple(chance.choices(range(1000), k=chance.randint(8, 128))),
                        min(LIMIT, 1 + int(chance.expovariate(1 / 64))), LIMIT) for index in range(number)]
    shape = Shape(num_slots=8, num_blocks=-(-8 * (LIMIT + 128) // block_size), block_size=block_size,
                  max_step_tokens=256)
    drive = Drive(requests, "continuous", shape, 0, Paper())
    for _ in drive.steps():
        pass
    return drive.waste


def main() -> None:
    pool = BlockPool(8)
    first = Text(pool, block_size=4)
    first.write("a penstock")
    second = first.fork()
    second.write("s lead")
    first.write(" leads")
    for text in (first, second):
        print(f"{text.tokens!r:>20} in the blocks {text.blocks}, position 9 in block {text.place(9)[0]}")
    print(f"{pool.num_free} of {pool.num_blocks} blocks are free, {pool.count(first.blocks[0])} texts hold block 0")
    for size in (1, 16, 64, 256):
        found = waste(size)
        print(f"blocks of {size:3} tokens: {found.of_blocks:5.1%} are empty; of one piece {found.of_contiguous:.1%}")


if __name__ == "__main__":
    main()
