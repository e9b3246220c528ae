"""Groups of several sizes: requests go where they fit."""

import asyncio
from dataclasses import replace

import pytest

from penstock.router.errors import GenerationError
from tests.fakes import FACTS, LIMITS
from tests.router.groups.test_groups import asked, scene
from tests.scripted_engine import collect, submit


async def test_a_request_goes_where_it_fits() -> None:
    async with scene("small", facts=replace(FACTS, num_blocks=4)) as made:
        large = made.add("large")
        while not large.engine.has_group:
            await asyncio.sleep(0)
        assert made.groups.limits.max_total_tokens == LIMITS.max_total_tokens
        assert made.groups.num_slots == 2 * LIMITS.max_slots
        streams = [submit(made.groups, asked(100, first=100 * number)) for number in range(3)]
        assert large.engine.num_requests == 3
        await asyncio.gather(*map(collect, streams))


async def test_no_group_gets_more_tokens_than_its_shards_have_tables_for() -> None:
    """They are as large as its limits, below what its memory holds: its shards would end with an error."""
    async with scene("small", limits=LIMITS.within(replace(FACTS, num_blocks=8))) as made:
        large = made.add("large")
        while not large.engine.has_group:
            await asyncio.sleep(0)
        streams = [submit(made.groups, asked(100, first=100 * number)) for number in range(3)]
        assert large.engine.num_requests == 3
        made.lose("large")
        while large.engine.has_group:
            await asyncio.sleep(0)
        assert large.engine.num_requests == 3
        made.fleets["large"].may_open.set()
        await asyncio.gather(*map(collect, streams))
        large.is_gone = True
        large.note()
        assert large not in made.groups.members
        with pytest.raises(GenerationError, match="with KV memory for 128 tokens"):
            submit(made.groups, asked(100))


async def test_blocks_of_two_sizes_are_compared_by_their_tokens() -> None:
    """As many blocks of four times the size are four times the load."""
    async with scene("a", facts=replace(FACTS, block_size=64, num_blocks=64)) as made:
        small = made.add("b")
        while not small.engine.has_group:
            await asyncio.sleep(0)
        for fleet in made.fleets.values():
            fleet.may_answer.clear()
        streams = [submit(made.groups, asked(first=100 * number)) for number in range(8)]
        await asyncio.sleep(0.05)
        assert [member.engine.num_requests for member in made.members.values()] == [4, 4]
        for fleet in made.fleets.values():
            fleet.may_answer.set()
        await asyncio.gather(*map(collect, streams))


async def test_the_memory_of_a_group_that_is_away_does_not_count() -> None:
    """Else a router of which half the groups are gone would never look as if it needed more of them."""
    async with scene("a", "b") as made:
        stream = submit(made.groups, asked(20))
        await collect(stream)
        assert made.series("penstock_kv_num_blocks ") == 2 * FACTS.num_blocks
        made.lose("a")
        while made.members["a"].engine.has_group:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert made.series("penstock_kv_num_blocks ") == FACTS.num_blocks
        assert made.series('penstock_group_kv_blocks{group="a",state="free"}') == 0
        made.fleets["a"].may_open.set()
        while not made.members["a"].engine.has_group:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert made.series("penstock_kv_num_blocks ") == 2 * FACTS.num_blocks
