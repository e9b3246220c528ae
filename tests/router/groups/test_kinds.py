"""Groups of different kinds: where requests go whose answers must have certain bits."""

import asyncio
from dataclasses import replace

import pytest

from penstock.router.errors import Unhealthy
from tests.fakes import FACTS
from tests.router.groups.test_groups import asked, scene
from tests.scripted_engine import submit


async def test_a_kind_without_room_for_all_that_the_limits_allow_comes_last() -> None:
    """A request that is bound to the kind of its ids must not fail for want of room that another kind has."""
    async with scene("a", facts=replace(FACTS, num_blocks=4)) as made:
        small = made.members["a"]
        made.add("b", replace(FACTS, numerics="other"))
        while not all(each.engine.has_group for each in made.groups.members):
            await asyncio.sleep(0)
        assert small.engine.load() <= made.members["b"].engine.load()
        assert [facts.numerics for facts in made.groups.kinds] == ["other", FACTS.numerics]


async def test_an_answer_whose_kind_is_away_may_be_had_later() -> None:
    """Though another kind is there. What the client hears of it is no final error."""
    async with scene("a") as made:
        other = made.add("b", replace(FACTS, numerics="other"))
        while not other.engine.has_group:
            await asyncio.sleep(0)
        other.engine.give_up()
        assert not other.engine.is_healthy
        with pytest.raises(Unhealthy):
            submit(made.groups, replace(asked(60), bits=other.engine.facts.bits, needs_bits=True))
