"""BlockPool: counts that a reader can check."""

import pytest

from penstock.router.scheduling.block_pool import BlockPool


def test_allocates_from_the_lowest_id() -> None:
    pool = BlockPool(4)
    assert pool.allocate(3) == [0, 1, 2]
    assert pool.num_free == 1
    assert [pool.count(block) for block in range(4)] == [1, 1, 1, 0]


def test_released_blocks_are_free_again() -> None:
    pool = BlockPool(2)
    blocks = pool.allocate(2)
    pool.release(blocks)
    assert pool.num_free == 2
    assert sorted(pool.allocate(2)) == [0, 1]


def test_a_block_is_released_once() -> None:
    pool = BlockPool(2)
    blocks = pool.allocate(1)
    pool.release(blocks)
    with pytest.raises(AssertionError, match="block 0 is released but nobody holds it"):
        pool.release(blocks)


def test_more_than_is_free_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="3 blocks asked of 2 free ones"):
        BlockPool(2).allocate(3)
