"""Requests that have probably killed their group, when that does not come back."""

import asyncio
from dataclasses import replace

from tests.fakes import FACTS
from tests.router.groups.test_groups import asked, collect, scene, some_tokens, submit, token_ids, undisturbed


async def test_a_stranded_suspect_goes_on_elsewhere_when_its_group_is_another_one() -> None:
    """It stays with the group that died of it twice, until there is no such group any more."""
    request = asked(60)
    wanted = await undisturbed(request)
    async with scene("a") as made:
        origin = made.members["a"]
        stream = submit(made.groups, request)
        had = await some_tokens([stream])
        made.lose("a", is_for_long=False)
        while origin.engine.has_group:
            await asyncio.sleep(0)
        while not origin.engine.has_group:
            await asyncio.sleep(0)
        other = made.add("b")
        while not other.engine.has_group:
            await asyncio.sleep(0)
        made.fleets["a"].facts = replace(FACTS, weights_digest="1", group="a")
        made.lose("a")
        while origin.engine.has_group:
            await asyncio.sleep(0)
        assert origin.engine.num_requests == 1, "a suspect that was narrowed down has left"
        made.fleets["a"].may_open.set()
        assert token_ids([*had[0], *await collect(stream)]) == wanted  # type: ignore[list-item]
        assert made.groups.members == [other]
