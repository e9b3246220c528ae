"""The KV memory, which the scheduler deals out in blocks; sequences share some of them through the prefix cache."""

from collections.abc import Sequence as Items
from sys import maxsize

from penstock.contract.block_copy import BlockCopy
from penstock.router.scheduling.block_pool import BlockPool
from penstock.router.scheduling.cached_block import Key, Node, Place
from penstock.router.scheduling.fork import Fork
from penstock.router.scheduling.prefix_cache import PrefixCache
from penstock.router.scheduling.sequence import Sequence
from penstock.router.scheduling.tier import Tier


class KvMemory:
    """Gives blocks to sequences and takes them back. Nobody else writes a sequence's `blocks`.

    A block is free, held by sequences, or only cached; one that is only cached can be given out like a free one. Of a
    model that computes each text in one step (`is_whole`) no sequence has any, and there is room for every one.
    """

    def __init__(
        self, block_size: int, num_blocks: int, shares_prefixes: bool = True, tier: Tier | None = None, *,
        is_whole: bool = False,
    ) -> None:
        self.is_whole = is_whole
        self.block_size = block_size
        self.shares_prefixes = shares_prefixes
        self._tier = tier
        self.resize(num_blocks)

    def resize(self, num_blocks: int) -> None:
        """Begins anew, empty and of so many blocks."""
        if self._tier is not None:
            self._tier.clear()
        self.pool = BlockPool(num_blocks)
        self.cache = PrefixCache(self.pool, self.block_size, self._tier)
        self.capacity = maxsize if self.is_whole else self.block_size * num_blocks
        """How many tokens it holds."""

    @property
    def num_available(self) -> int:
        """How many blocks can be given out without taking any from a sequence."""
        return self.pool.num_free + self.cache.num_evictable

    @property
    def num_held(self) -> int:
        """How many blocks sequences hold."""
        return self.pool.num_blocks - self.num_available

    def blocks_for(self, length: int) -> int:
        """Returns how many blocks it takes to hold `length` tokens."""
        return 0 if self.is_whole else -(-length // self.block_size)

    def room(self, sequence: Sequence, reserve: int) -> int:
        """Returns for how many positions behind its next one a sequence has blocks, or gets some that leave `reserve`
        blocks available."""
        spare = max(0, self.num_available - reserve)
        return max(0, (len(sequence.blocks) + spare) * self.block_size - sequence.computed - 1)

    def hit_blocks(self, namespace: str, tokens: Items[int], coming: int = 0) -> int:
        """Returns how many blocks a prompt may begin with that are cached, or are among the first `coming`."""
        most = (len(tokens) - 1) // self.block_size if self.shares_prefixes else 0
        return min(most, max(coming, self.cache.match(namespace, tokens, most).depth))

    def match(self, sequence: Sequence) -> Node:
        """Finds the cached blocks that a sequence may begin with, and returns the last of them.

        At least one token is left, to compute the next one from. While all tokens have to be computed no block matches.
        """
        may_match = self.shares_prefixes and not sequence.needs_all_tokens
        most = (len(sequence.tokens) - 1) // self.block_size if may_match else 0
        sequence.matched = self.cache.match(sequence.namespace, sequence.tokens, most, sequence.matched)
        return sequence.matched

    def missing(self, sequence: Sequence, matched: Node) -> tuple[Node, Key] | None:
        """Names the block that a waiting sequence would match next, by the block before it and its key."""
        is_last = (matched.depth + 1) * self.block_size >= len(sequence.tokens)
        if is_last or sequence.needs_all_tokens or not self.shares_prefixes:
            return None
        return matched, self.cache.key(sequence.namespace, sequence.tokens, matched.depth)

    def coming(self, sequence: Sequence) -> tuple[Node, Key] | None:
        """Names the block that a running sequence's prefill will share next, as `missing` does."""
        index = sequence.num_blocks_cached
        if not self.shares_prefixes or (index + 1) * self.block_size > sequence.prefill_end:
            return None
        key = self.cache.key(sequence.namespace, sequence.tokens, index)
        return self.cache.last(sequence.blocks, index), key

    def has_room(self, sequence: Sequence, matched: Node, reserve: int) -> bool:
        """Tells whether there are blocks for all tokens of a waiting sequence, with `reserve` blocks to spare."""
        spare = self.num_available - reserve - self.blocks_for(len(sequence.tokens)) + matched.on_device().depth
        return spare >= 0 and spare >= self.cache.num_idle(matched)

    def reserve_of(self, sequence: Sequence) -> int:
        """Returns how many blocks to keep for a running sequence: for the rest of its prefill, and one to grow, unless
        it does not."""
        missing = max(0, self.blocks_for(sequence.prefill_end) - len(sequence.blocks))
        return missing + (sequence.pooled is None)

    def begin(self, sequence: Sequence, matched: Node) -> None:
        """Gives the sequence the blocks that it was matched with, and other ones for those that a tier keeps, into
        which it copies what it keeps. Their tokens count as computed."""
        present = matched.on_device()
        sequence.blocks = self.cache.path(present)
        self.cache.hold(sequence.blocks)
        if present is not matched:
            self._fetch(sequence, matched)
        sequence.num_blocks_cached = len(sequence.blocks)
        sequence.computed = len(sequence.blocks) * self.block_size
        sequence.matched = None

    def _fetch(self, sequence: Sequence, matched: Node) -> None:
        """Extends the sequence's blocks up to a node that a tier keeps, the first one first: a tier that takes what is
        evicted for that may give up those behind."""
        kept: list[Node] = []
        while matched.place is not Place.DEVICE:
            kept.append(matched)
            assert matched.parent is not None
            matched = matched.parent
        for node in reversed(kept):
            [block] = self.allocate(1)
            if not self.cache.fetch(node, block):
                self.pool.release([block])
                return
            sequence.blocks.append(block)

    def lose_moves(self) -> None:
        """Forgets all that is cached where there is a tier, once nothing is held: nobody knows whether the blocks were
        moved that the steps which were lost should have moved."""
        if self._tier is not None:
            self.cache.clear()

    def extend(self, sequence: Sequence, number: int) -> None:
        """Gives the sequence `number` more blocks. So many are available."""
        sequence.blocks += self.allocate(number)

    def allocate(self, number: int) -> list[int]:
        """Returns `number` blocks, and evicts cached ones for that if need be. So many are available."""
        self.cache.evict(number - self.pool.num_free)
        return self.pool.allocate(number)

    def blocks_to_fork(self, sequence: Sequence, num_more: int) -> int:
        """Returns how many blocks a fork takes that goes `num_more` tokens beyond the sequence's last."""
        length = len(sequence.tokens)
        return self.blocks_for(length + num_more) - (length - 1) // self.block_size

    def fork(self, sequence: Sequence, number: int, slot: int) -> Fork:
        """Takes `number` blocks for another way on from a sequence's last token. So many are available."""
        num_shared, num_written = divmod(len(sequence.tokens) - 1, self.block_size)
        blocks = self.allocate(number)
        copies = (BlockCopy(sequence.blocks[num_shared], blocks[0]),) if num_written else ()
        return Fork(slot, blocks, num_shared, copies)

    def begin_fork(self, sequence: Sequence, parent: Sequence, fork: Fork) -> None:
        """Gives the sequence the blocks that a fork shares with its parent, and those of the fork; the tokens that the
        parent has computed count as computed."""
        shared = parent.blocks[:fork.num_shared]
        self.pool.hold(shared)
        sequence.blocks = [*shared, *fork.blocks]
        sequence.num_blocks_cached = min(parent.num_blocks_cached, fork.num_shared)
        sequence.computed = parent.computed
        sequence.matched = None

    def confirm(self, sequence: Sequence, length: int) -> None:
        """Caches the full blocks of the first `length` tokens, whose result is back, so that they can be shared."""
        num_full = length // self.block_size
        if num_full > sequence.num_blocks_cached and self.shares_prefixes:
            sequence.num_blocks_cached = self.cache.insert(
                sequence.namespace, sequence.tokens, sequence.blocks, num_full, sequence.num_blocks_cached)

    def release(self, sequence: Sequence) -> None:
        """Takes all blocks of the sequence back."""
        self.cache.release(sequence.blocks)
        sequence.blocks = []
        sequence.num_blocks_cached = 0
