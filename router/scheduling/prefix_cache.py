"""The prefix cache, which knows the full blocks that hold the keys and values of given tokens."""

from collections import OrderedDict
from collections.abc import Sequence

from penstock.router.scheduling.block_pool import BlockPool
from penstock.router.scheduling.cached_block import Key, Node, Place
from penstock.router.scheduling.tier import NoTier, Tier


class PrefixCache:
    """A radix tree over full blocks.

    The cache holds each of its blocks once in the pool, and so does every sequence that uses it. A sequence that holds
    a cached block holds all blocks before it too. So when a sequence lets go of its blocks from the last to the first,
    the blocks that only the cache holds stand in an order in which each comes before the one it continues: the front
    of that order is the least recently used block, and nothing cached depends on it.

    What is evicted is offered to a `tier`. If the tier keeps its content, the node stays in the tree, below all nodes
    whose blocks the device has, and can be fetched into another block.
    """

    def __init__(self, pool: BlockPool, block_size: int, tier: Tier | None = None) -> None:
        self._pool = pool
        self._tier = tier or NoTier()
        self._block_size = block_size
        self._root = Node((), block=-1, depth=0, parent=None)
        self._nodes: dict[int, Node] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()

    def __contains__(self, block: int) -> bool:
        return block in self._nodes

    @property
    def num_evictable(self) -> int:
        """How many cached blocks no sequence holds."""
        return len(self._idle)

    def match(
        self, namespace: str, tokens: Sequence[int], max_blocks: int, earlier: Node | None = None,
    ) -> Node:
        """Returns the last block of the longest cached prefix of `tokens`, of at most `max_blocks`, wherever these are.
        Changes nothing.

        `earlier` is the result of an earlier match of these tokens: the search starts there if it is still cached.
        """
        is_cached = earlier is not None and self._nodes.get(earlier.block) is earlier
        node = earlier if earlier is not None and is_cached else self._root
        while node.depth < max_blocks:
            child = node.children.get(self.key(namespace, tokens, node.depth))
            if child is None:
                break
            node = child
        return node

    def last(self, blocks: Sequence[int], num_cached: int) -> Node:
        """Returns the node of the last cached one of a sequence's blocks, of which `num_cached` are."""
        return self._nodes[blocks[num_cached - 1]] if num_cached else self._root

    def path(self, node: Node) -> list[int]:
        """Returns the blocks from the first one to that of `node`, which the device has."""
        blocks = []
        while node.parent is not None:
            blocks.append(node.block)
            node = node.parent
        return blocks[::-1]

    def num_idle(self, node: Node) -> int:
        """Returns how many blocks on the way to `node` could be evicted now: those after the last one in use."""
        number, node = 0, node.on_device()
        while node.parent is not None and node.block in self._idle:
            number += 1
            node = node.parent
        return number

    def hold(self, blocks: Sequence[int]) -> None:
        """Notes that a sequence begins to use cached blocks, as `path` returned them."""
        for block in blocks:
            self._idle.pop(block, None)
        self._pool.hold(blocks)

    def insert(
        self, namespace: str, tokens: Sequence[int], blocks: Sequence[int], num_full: int, num_cached: int,
    ) -> int:
        """Caches the first `num_full` blocks, whose keys and values are confirmed; returns how many are cached now.

        `blocks` hold `tokens`, the caller holds them all, and the first `num_cached` are in the tree. Where another
        sequence came first with the same tokens, its block stays, and nothing after it is cached, since the caller does
        not hold that block.
        """
        node = self.last(blocks, num_cached)
        for index in range(num_cached, num_full):
            key = self.key(namespace, tokens, index)
            child = node.children.get(key)
            if child is None:
                child = node.children[key] = Node(key, -1, index + 1, node)
            elif child.place is Place.DEVICE:
                return index
            else:
                self._tier.forget(child)
            self._put(child, blocks[index])
            node = child
        return num_full

    def _put(self, node: Node, block: int) -> None:
        """Takes in that a block of the device, which a sequence holds, has what belongs to a node."""
        node.block, node.place = block, Place.DEVICE
        self._nodes[block] = node
        self._pool.hold([block])

    def fetch(self, node: Node, block: int) -> bool:
        """Has the content of a node copied into a block that a sequence holds, behind those that the device has.
        Returns whether the tier still keeps it."""
        if node.parent is None or node.parent.children.get(node.key) is not node:
            return False
        self._tier.fetch(node, block)
        self._put(node, block)
        return True

    def release(self, blocks: Sequence[int]) -> None:
        """Takes a sequence's blocks back, cached or not."""
        backwards, count = blocks[::-1], self._pool.count
        self._pool.release(backwards)
        for block in backwards:
            if block in self._nodes and count(block) == 1:
                self._idle[block] = None

    def evict(self, number: int) -> None:
        """Frees up to `number` blocks that only the cache holds, the least recently used first. Their content moves to
        the tier, if that keeps it."""
        for _ in range(min(number, len(self._idle))):
            block, _ = self._idle.popitem(last=False)
            node = self._nodes.pop(block)
            assert not node.children or all(each.place is not Place.DEVICE for each in node.children.values()), (
                f"block {block} is evicted before those that continue it")
            if (place := self._tier.keep(node)) is not None:
                node.block, node.place = -1, place
            else:
                self.forget(node)
            self._pool.release([block])

    def forget(self, node: Node) -> None:
        """Takes a node that the device does not have any more out of the tree, and all that continue it."""
        assert node.parent is not None
        del node.parent.children[node.key]
        gone = [node]
        while gone:
            node = gone.pop()
            if node.place is not Place.DEVICE:
                self._tier.forget(node)
            gone += node.children.values()

    def clear(self) -> None:
        """Forgets all cached blocks, after the memory behind them was lost."""
        self._tier.clear()
        self._pool.release(self._nodes)
        self._nodes.clear()
        self._idle.clear()
        self._root.children.clear()

    def key(self, namespace: str, tokens: Sequence[int], index: int) -> Key:
        """Returns the key of block `index` of `tokens`; that of a block which is not full is in no tree."""
        block = tokens[index * self._block_size:(index + 1) * self._block_size]
        return tuple(block) if index else (namespace, *block)
