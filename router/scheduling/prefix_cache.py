"""The prefix cache: which full blocks hold the keys and values of which tokens."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from router.scheduling.block_pool import BlockPool


@dataclass(slots=True, eq=False)
class _Node:
    """A cached block: the tokens in it, and through its parents those before them."""

    tokens: tuple[int, ...]
    block: int
    parent: "_Node | None"
    children: dict[tuple[int, ...], "_Node"] = field(default_factory=dict)


class PrefixCache:
    """A radix tree over full blocks, with a root for each namespace (adapter, tenant, image).

    The cache holds each of its blocks once in the pool, and so does every sequence that uses it. A sequence that holds
    a cached block holds all blocks before it too. So when a sequence lets go of its blocks from the last to the first,
    the blocks that only the cache holds stand in an order in which each comes before the one it continues: the front
    of that order is the least recently used block, and nothing cached depends on it.
    """

    def __init__(self, pool: BlockPool, block_size: int) -> None:
        self._pool = pool
        self._block_size = block_size
        self._roots: dict[str, _Node] = {}
        self._nodes: dict[int, _Node] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()

    def __contains__(self, block: int) -> bool:
        return block in self._nodes

    @property
    def num_cached(self) -> int:
        return len(self._nodes)

    @property
    def num_evictable(self) -> int:
        """Cached blocks that no sequence holds."""
        return len(self._idle)

    def match(self, namespace: str, tokens: Sequence[int], max_blocks: int) -> list[int]:
        """The blocks of the longest cached prefix of `tokens`, at most `max_blocks`. Changes nothing."""
        node = self._roots.get(namespace)
        blocks: list[int] = []
        while node is not None and len(blocks) < max_blocks:
            node = node.children.get(self._key(tokens, len(blocks)))
            if node is not None:
                blocks.append(node.block)
        return blocks

    def num_idle(self, blocks: Sequence[int]) -> int:
        """How many of these blocks could be evicted now."""
        return sum(block in self._idle for block in blocks)

    def hold(self, blocks: Sequence[int]) -> None:
        """A sequence begins to use cached blocks, as `match` gave them."""
        for block in blocks:
            self._idle.pop(block, None)
        self._pool.hold(blocks)

    def insert(self, namespace: str, tokens: Sequence[int], blocks: Sequence[int], num_cached: int) -> int:
        """Cache blocks whose keys and values are confirmed; returns how many of `blocks` are cached now.

        `blocks` hold the first full blocks of `tokens`, the caller holds them all, and the first `num_cached` are in
        the tree. Where another sequence came first with the same tokens its block stays, and nothing after it is
        cached, for the caller does not hold that block.
        """
        if num_cached:
            node = self._nodes[blocks[num_cached - 1]]
        else:
            node = self._roots.setdefault(namespace, _Node((), -1, None))
        for index in range(num_cached, len(blocks)):
            key = self._key(tokens, index)
            if key in node.children:
                return index
            child = _Node(key, blocks[index], node)
            node.children[key] = self._nodes[child.block] = child
            self._pool.hold([child.block])
            node = child
        return len(blocks)

    def release(self, blocks: Sequence[int]) -> None:
        """A sequence lets go of its blocks, cached or not."""
        for block in reversed(blocks):
            self._pool.release([block])
            if block in self._nodes and self._pool.count(block) == 1:
                self._idle[block] = None

    def evict(self, number: int) -> int:
        """Free up to `number` blocks that only the cache holds, the least recently used first; returns how many."""
        number = min(number, len(self._idle))
        for _ in range(number):
            block, _ = self._idle.popitem(last=False)
            node = self._nodes.pop(block)
            assert node.parent is not None
            assert not node.children, f"block {block} is evicted before those that continue it"
            del node.parent.children[node.tokens]
            self._pool.release([block])
        return number

    def clear(self) -> None:
        """Forget everything: the memory behind the blocks is gone."""
        self._pool.release(self._nodes)
        self._nodes.clear()
        self._idle.clear()
        self._roots.clear()

    def _key(self, tokens: Sequence[int], index: int) -> tuple[int, ...]:
        """The tokens of block `index`; shorter than a block, and so in no tree, where they end."""
        return tuple(tokens[index * self._block_size:(index + 1) * self._block_size])
