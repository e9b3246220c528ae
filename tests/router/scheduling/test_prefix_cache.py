"""PrefixCache and KvMemory on numbers that a reader checks on paper, then against a dict of prefixes."""

import random
from collections import Counter

import pytest

from penstock.router.scheduling.block_pool import BlockPool
from penstock.router.scheduling.memory import KvMemory
from penstock.router.scheduling.prefix_cache import PrefixCache
from penstock.router.scheduling.sequence import Sequence
from tests.router.scheduling.small_schedulers import cached_blocks, make_sequence

TOKENS = list(range(12))


def make_cache(num_blocks: int = 10) -> tuple[BlockPool, PrefixCache]:
    pool = BlockPool(num_blocks)
    return pool, PrefixCache(pool, block_size=4)


def match(cache: PrefixCache, tokens: list[int], max_blocks: int = 10, namespace: str = "") -> list[int]:
    return cache.path(cache.match(namespace, tokens, max_blocks))


def cache_tokens(pool: BlockPool, cache: PrefixCache, tokens: list[int], namespace: str = "") -> list[int]:
    """A sequence with nothing cached computes full blocks of tokens, caches them, and ends."""
    blocks = pool.allocate(len(tokens) // 4)
    cache.insert(namespace, tokens, blocks, len(blocks), 0)
    cache.release(blocks)
    return blocks


def test_nothing_is_cached_at_first() -> None:
    pool, cache = make_cache()
    assert (match(cache, TOKENS), cached_blocks(pool, cache), cache.num_evictable) == ([], [], 0)


def test_a_match_is_the_longest_prefix_of_full_blocks() -> None:
    pool, cache = make_cache()
    cache_tokens(pool, cache, TOKENS)
    assert match(cache, TOKENS) == [0, 1, 2]
    assert match(cache, [*TOKENS, 12]) == [0, 1, 2]
    assert match(cache, TOKENS[:11]) == [0, 1]
    assert match(cache, [0, 1, 2, 3, 4, 5, 6, 8, 8, 9, 10, 11]) == [0]
    assert match(cache, [1, 1, 2, 3, 4, 5, 6, 7]) == []
    assert match(cache, TOKENS[4:]) == []


def test_a_match_has_at_most_so_many_blocks() -> None:
    pool, cache = make_cache()
    cache_tokens(pool, cache, TOKENS)
    assert [match(cache, TOKENS, max_blocks) for max_blocks in (0, 1, 2, 3)] == [[], [0], [0, 1], [0, 1, 2]]


def test_namespaces_share_nothing() -> None:
    pool, cache = make_cache()
    assert cache_tokens(pool, cache, TOKENS[:8], "adapter") == [0, 1]
    assert match(cache, TOKENS) == []
    assert cache_tokens(pool, cache, TOKENS) == [2, 3, 4]
    assert match(cache, TOKENS, namespace="adapter") == [0, 1]
    assert match(cache, TOKENS) == [2, 3, 4]


def test_a_match_goes_on_where_an_earlier_one_ended() -> None:
    pool, cache = make_cache()
    blocks = pool.allocate(3)
    cache.insert("", TOKENS, blocks, 1, 0)
    earlier = cache.match("", TOKENS, 3)
    cache.insert("", TOKENS, blocks, 3, 1)
    assert cache.path(cache.match("", TOKENS, 3, earlier)) == [0, 1, 2]


def test_a_match_starts_anew_when_the_earlier_one_is_evicted() -> None:
    """Block 1 is evicted and taken by other tokens, so that it is no place to go on from."""
    pool, cache = make_cache()
    cache_tokens(pool, cache, TOKENS[:8])
    earlier = cache.match("", TOKENS, 3)
    cache.evict(1)
    assert cache.path(cache.match("", TOKENS, 3, earlier)) == [0]
    assert cache_tokens(pool, cache, [7] * 4) == [1]
    assert cache.path(cache.match("", TOKENS, 3, earlier)) == [0]
    cache.clear()
    assert cache.path(cache.match("", TOKENS, 3, earlier)) == []


def test_the_cache_holds_what_it_caches() -> None:
    pool, cache = make_cache()
    blocks = pool.allocate(3)
    assert cache.insert("", TOKENS, blocks, 2, 0) == 2
    assert ([pool.count(block) for block in blocks], cached_blocks(pool, cache)) == ([2, 2, 1], blocks[:2])
    assert cache.num_evictable == 0
    cache.release(blocks)
    assert ([pool.count(block) for block in blocks], cached_blocks(pool, cache)) == ([1, 1, 0], blocks[:2])
    assert cache.num_evictable == 2


def test_an_insert_goes_on_behind_what_is_cached() -> None:
    pool, cache = make_cache()
    blocks = pool.allocate(3)
    assert [cache.insert("", TOKENS, blocks, full, cached) for full, cached in [(1, 0), (1, 1), (3, 1)]] == [1, 1, 3]
    assert match(cache, TOKENS) == [0, 1, 2]


def test_where_another_came_first_its_block_stays() -> None:
    pool, cache = make_cache()
    first, second = pool.allocate(2), pool.allocate(3)
    assert cache.insert("", TOKENS[:8], first, 2, 0) == 2
    assert cache.insert("", TOKENS, second, 3, 0) == 0
    assert match(cache, TOKENS) == [0, 1]
    cache.release(second)
    assert [pool.count(block) for block in second] == [0, 0, 0]
    assert match(cache, TOKENS) == [0, 1]


def test_who_came_second_is_cached_once_the_first_is_evicted() -> None:
    pool, cache = make_cache()
    first, second = pool.allocate(1), pool.allocate(2)
    cache.insert("", TOKENS, first, 1, 0)
    assert cache.insert("", TOKENS, second, 2, 0) == 0
    cache.release(first)
    cache.evict(1)
    assert cache.insert("", TOKENS, second, 2, 0) == 2
    assert match(cache, TOKENS) == [1, 2]


def test_held_blocks_are_not_evicted() -> None:
    pool, cache = make_cache()
    cache_tokens(pool, cache, TOKENS)
    cache.hold([0, 1])
    assert ([pool.count(block) for block in (0, 1, 2)], cache.num_evictable) == ([2, 2, 1], 1)
    assert cache.num_idle(cache.match("", TOKENS, 3)) == 1
    assert cache.num_idle(cache.match("", TOKENS, 2)) == 0
    cache.evict(3)
    assert match(cache, TOKENS) == [0, 1]


def test_eviction_goes_from_the_last_block_to_the_first() -> None:
    pool, cache = make_cache()
    cache_tokens(pool, cache, TOKENS)
    assert cache.num_idle(cache.match("", TOKENS, 3)) == 3
    left = []
    while cache.num_evictable:
        cache.evict(1)
        left.append(match(cache, TOKENS))
    assert left == [[0, 1], [0], []]
    assert (pool.num_free, cached_blocks(pool, cache)) == (10, [])


def test_the_least_recently_used_is_evicted_first() -> None:
    pool, cache = make_cache()
    first, second = cache_tokens(pool, cache, [1] * 4), cache_tokens(pool, cache, [2] * 4)
    cache.hold(first)
    cache.release(first)
    cache.evict(1)
    assert [match(cache, [1] * 4), match(cache, [2] * 4)] == [first, []]
    assert second == [1]


def test_a_shared_head_outlives_its_tails() -> None:
    """Blocks 0, 1 and 0, 2: both tails go before the head, the older tail first."""
    pool, cache = make_cache()
    cache_tokens(pool, cache, TOKENS[:8])
    cache.hold([0])
    blocks = [0, *pool.allocate(1)]
    assert cache.insert("", [0, 1, 2, 3, 9, 9, 9, 9], blocks, 2, 1) == 2
    cache.release(blocks)
    cache.evict(1)
    assert [match(cache, TOKENS), match(cache, [0, 1, 2, 3, 9, 9, 9, 9])] == [[0], [0, 2]]
    cache.evict(1)
    assert match(cache, [0, 1, 2, 3, 9, 9, 9, 9]) == [0]


def test_no_more_is_evicted_than_is_there() -> None:
    pool, cache = make_cache()
    cache_tokens(pool, cache, TOKENS)
    for number, num_left in [(0, 3), (2, 1), (5, 0), (5, 0)]:
        cache.evict(number)
        assert len(cached_blocks(pool, cache)) == cache.num_evictable == num_left


def test_clear_forgets_everything() -> None:
    pool, cache = make_cache()
    cache_tokens(pool, cache, TOKENS)
    cache_tokens(pool, cache, TOKENS, "adapter")
    cache.clear()
    assert (pool.num_free, cached_blocks(pool, cache), cache.num_evictable) == (10, [], 0)
    assert [match(cache, TOKENS), match(cache, TOKENS, namespace="adapter")] == [[], []]


def test_memory_adds_up() -> None:
    memory = KvMemory(block_size=4, num_blocks=10)
    sequence = make_sequence(1, 9)
    memory.begin(sequence, memory.match(sequence))
    memory.extend(sequence, 3)
    assert (memory.num_available, memory.num_held, sequence.blocks) == (7, 3, [0, 1, 2])
    memory.confirm(sequence, 9)
    assert (cached_blocks(memory.pool, memory.cache), sequence.num_blocks_cached) == ([0, 1], 2)
    memory.release(sequence)
    assert (memory.num_available, memory.num_held, memory.pool.num_free) == (10, 0, 8)
    assert (sequence.blocks, sequence.num_blocks_cached) == ([], 0)


@pytest.mark.parametrize(("length", "hit"), [(3, 0), (4, 0), (5, 4), (8, 4), (9, 8), (40, 16)])
def test_one_token_at_least_is_left_to_compute(length: int, hit: int) -> None:
    memory = KvMemory(block_size=4, num_blocks=10)
    first, second = make_sequence(1, 17), make_sequence(2, tokens=range(100, 100 + length))
    memory.extend(first, 5)
    memory.confirm(first, 17)
    memory.begin(second, memory.match(second))
    assert (second.computed, len(second.blocks), second.num_blocks_cached) == (hit, hit // 4, hit // 4)


def test_extending_evicts_what_is_missing() -> None:
    memory = KvMemory(block_size=4, num_blocks=4)
    first, second = make_sequence(1, 12), make_sequence(2, 8)
    memory.extend(first, 3)
    memory.confirm(first, 12)
    memory.release(first)
    memory.extend(second, 2)
    assert (sorted(second.blocks), memory.pool.num_free) == ([2, 3], 0)
    assert cached_blocks(memory.pool, memory.cache) == [0, 1]


def test_blocks_that_would_be_matched_are_no_room() -> None:
    """Four blocks can be had, two of them by being matched: of three tokens' blocks behind them only two fit."""
    memory = KvMemory(block_size=4, num_blocks=4)
    first = make_sequence(1, 8)
    memory.extend(first, 2)
    memory.confirm(first, 8)
    memory.release(first)
    for length, reserve, has_room in [(16, 0, True), (17, 0, False), (16, 1, False), (12, 1, True)]:
        second = make_sequence(2, tokens=range(100, 108 + length - 8))
        matched = memory.match(second)
        assert matched.depth == 2
        assert memory.has_room(second, matched, reserve) is has_room


class PrefixDict:
    """The prefix cache as a reader would write it who has time: whole prefixes, and a list of idle blocks."""

    def __init__(self) -> None:
        self.blocks: dict[tuple[object, ...], int] = {}
        self.holders: Counter[int] = Counter()
        self.idle: list[int] = []

    def prefix(self, sequence: Sequence, num_blocks: int) -> tuple[object, ...]:
        return (sequence.namespace, *sequence.tokens[:num_blocks * 4])

    def match(self, sequence: Sequence) -> list[int]:
        most = (len(sequence.tokens) - 1) // 4
        lengths = [n for n in range(1, most + 1)
                   if all(self.prefix(sequence, k) in self.blocks for k in range(1, n + 1))]
        return [self.blocks[self.prefix(sequence, n)] for n in lengths]

    def hold(self, blocks: list[int]) -> None:
        self.holders.update(blocks)
        self.idle = [block for block in self.idle if block not in blocks]

    def insert(self, sequence: Sequence, length: int) -> None:
        for number, block in enumerate(sequence.blocks[:length // 4], start=1):
            if self.blocks.setdefault(self.prefix(sequence, number), block) != block:
                return

    def release(self, blocks: list[int]) -> None:
        self.holders.subtract(blocks)
        self.idle += [block for block in reversed(blocks)
                      if not self.holders[block] and block in self.blocks.values()]

    def evict(self, number: int) -> None:
        gone, self.idle = self.idle[:number], self.idle[number:]
        self.blocks = {prefix: block for prefix, block in self.blocks.items() if block not in gone}


@pytest.mark.parametrize("seed", range(8))
def test_a_dict_of_prefixes_says_the_same(seed: int) -> None:
    """Sequences of few different tokens come, grow, are confirmed and go, in a memory that is mostly full."""
    dice = random.Random(seed)
    memory, model = KvMemory(block_size=4, num_blocks=16), PrefixDict()
    running: list[Sequence] = []
    waiting: list[Sequence] = []
    num_evicted = num_hits = 0
    for id in range(1500):
        waiting.append(make_sequence(id, tokens=[dice.randint(0, 1) for _ in range(dice.randint(1, 20))],
                                     image=dice.choice([b"", b"adapter"])))
        for sequence in waiting:
            assert memory.cache.path(memory.match(sequence)) == model.match(sequence)
        if len(waiting) < 5:
            continue
        newcomer = waiting.pop(dice.randrange(len(waiting)))
        matched = memory.match(newcomer)
        if memory.has_room(newcomer, matched, reserve=0):
            memory.begin(newcomer, matched)
            model.hold(newcomer.blocks)
            num_hits += bool(newcomer.blocks)
            running.append(newcomer)
            needed = memory.blocks_for(len(newcomer.tokens)) - len(newcomer.blocks)
            num_evicted += max(0, needed - memory.pool.num_free)
            model.evict(max(0, needed - memory.pool.num_free))
            memory.extend(newcomer, needed)
            model.hold(newcomer.blocks[-needed:])
        for sequence in dice.sample(running, len(running) // 2):
            length = dice.randint(sequence.num_blocks_cached * 4, len(sequence.tokens))
            memory.confirm(sequence, length)
            model.insert(sequence, length)
        if len(running) > 3:
            leaver = running.pop(dice.randrange(4))
            blocks = leaver.blocks
            memory.release(leaver)
            model.release(blocks)
        assert list(memory.cache._idle) == model.idle
        assert len(cached_blocks(memory.pool, memory.cache)) == len(model.blocks)
        assert memory.num_held == len(+model.holders)
    assert num_evicted > 500
    assert num_hits > 100
