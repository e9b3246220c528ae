"""Groups are found where a directory lists them."""

import asyncio
from contextlib import suppress

import pytest

from penstock.router.groups import roster as rosters
from penstock.router.groups.groups import Groups
from tests.router.groups.test_groups import asked
from tests.router.groups.world import World, router, until_there_are
from tests.scripted_engine import collect, submit


async def test_a_router_begins_with_all_groups_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes back to it may need the numerics of any."""
    monkeypatch.setattr(rosters, "OTHERS_SECONDS", 20.0)
    world = World()
    world.start("a:1", "first", numerics="one")
    asyncio.get_running_loop().call_later(0.01, lambda: world.start("b:1", "second", numerics="two"))
    async with router(world, "a:1", "b:1") as groups:
        assert {each.numerics for each in groups.kinds} == {"one", "two"}


async def test_a_group_that_is_too_small_is_not_the_first_one_if_another_is_there(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rosters, "OTHERS_SECONDS", 20.0)
    world = World()
    world.start("a:1", "small", num_blocks=8)
    world.start("b:1", "large")
    world.list("a:1", "b:1")
    roster = world.roster()
    watching = asyncio.create_task(roster.watch())
    try:
        for num_blocks, name in ((200, "large"), (8, "small"), (300, "small")):
            facts = await roster.first(lambda facts, least=num_blocks: facts.num_blocks >= least)  # type: ignore[misc]
            assert facts.group == name
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def test_a_dead_address_costs_nothing_and_a_late_one_joins() -> None:
    world = World()
    world.start("a:1", "first")
    async with router(world, "dead:1", "a:1", "late:1") as groups:
        await until_there_are(groups, "first")
        assert len(await collect(submit(groups, asked()))) == 20
        world.start("late:1", "second")
        await until_there_are(groups, "first", "second")


async def test_a_name_that_is_taken_twice_is_told(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.start("a:1", "same")
    async with router(world, "a:1", "b:1", "c:1") as groups:
        await until_there_are(groups, "same")
        world.start("b:1", "same")
        world.start("c:1", "other")
        await until_there_are(groups, "other", "same")
    told = [record.getMessage() for record in caplog.records if "--group-name" in record.getMessage()]
    assert told == ["the shard at b:1 gets no requests while a:1 is listed, since both are of group same: unless they "
                    "are the same, give each group a --group-name of its own"]


async def test_a_group_that_is_given_a_name_of_its_own_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has two machines, which are started anew one after the other, long after it was warned of."""
    monkeypatch.setattr(rosters, "REFUSED_SECONDS", 0.05)
    world = World()
    world.start("a:1", "same")
    async with router(world, "a:1", "b:1", "c:1") as groups:
        for rank, address in enumerate(("b:1", "c:1")):
            world.start(address, "same", rank=rank, shards_here=1, world_size=2)
        await asyncio.sleep(0.3)
        assert [each.name for each in groups.members] == ["same"]
        world.start("c:1", "other", rank=1, world_size=2)
        await asyncio.sleep(0.2)
        world.start("b:1", "other", rank=0, world_size=2)
        await until_there_are(groups, "other", "same")
        assert len(await collect(submit(groups, asked()))) == 20


async def test_a_flat_list_sorts_itself() -> None:
    """Two machines of one group, a group of its own, and an address that leads to the same shards."""
    world = World()
    world.start("b:4000", "large", rank=2, shards_here=2, world_size=4)
    world.start("c:4000", "small")
    world.start("also-c:4000", "small")
    async with router(world, "a:4000", "b:4000", "c:4000", "also-c:4000") as groups:
        await until_there_are(groups, "small")
        world.start("a:4000", "large", rank=0, shards_here=2, world_size=4)
        await until_there_are(groups, "large", "small")
    assert world.targets["large"] == ["a:4000", "a:4001", "b:4000", "b:4001"]
    assert world.targets["small"] in (["c:4000"], ["also-c:4000"])


async def test_shards_that_are_lost_while_they_are_asked_are_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rosters, "RETRY_SECONDS", 0.0)
    world = World(num_lost=3)
    world.start("a:1", "first")
    async with router(world, "a:1") as groups:
        await until_there_are(groups, "first")
    assert not world.num_lost


async def test_who_is_at_an_address_is_asked_again_where_a_group_has_changed() -> None:
    world = World(num_changed=2)
    world.start("a:1", "first")
    async with router(world, "a:1") as groups:
        await until_there_are(groups, "first")
    assert not world.num_changed


async def test_a_group_that_does_not_fit_is_refused_until_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rosters, "REFUSED_SECONDS", 0.01)
    world = World()
    world.start("a:1", "first")
    async with router(world, "a:1", "b:1") as groups:
        await until_there_are(groups, "first")
        world.start("b:1", "second", vocab_size=100)
        while not groups.num_refused:
            await asyncio.sleep(0)
        assert len(groups.members) == 1
        world.start("b:1", "second")
        await until_there_are(groups, "first", "second")
        assert groups.num_refused == 0


async def test_a_group_that_is_refused_and_listed_no_more_does_not_count() -> None:
    world = World()
    world.start("a:1", "first")
    world.start("b:1", "second", vocab_size=100)
    async with router(world, "a:1") as groups:
        world.list("a:1", "b:1")
        while not groups.num_refused:
            await asyncio.sleep(0)
        world.list("a:1")
        while groups.num_refused:
            await asyncio.sleep(0)


async def test_what_follows_the_only_group_has_to_fit_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are tokenised as for the one that was there."""
    monkeypatch.setattr(rosters, "REFUSED_SECONDS", 0.01)
    world = World()
    world.start("a:1", "first")
    async with router(world, "a:1") as groups:
        await until_there_are(groups, "first")
        world.start("a:1", "second", vocab_size=100)
        world.fleets["first"].facts = world.machines["a:1"].facts
        world.fleets["first"].is_lost.set()
        while not groups.num_refused:
            assert all(each.name == "first" for each in groups.members)
            await asyncio.sleep(0)
        world.start("a:1", "third", weights_digest="other")
        await until_there_are(groups, "third")


async def test_a_group_that_is_listed_no_more_is_left_and_may_come_back() -> None:
    world = World()
    world.start("a:1", "first")
    world.start("b:1", "second")
    async with router(world, "a:1", "b:1") as groups:
        await until_there_are(groups, "first", "second")
        streams = [submit(groups, asked(60, first=100 * number)) for number in range(4)]
        world.list("b:1")
        await until_there_are(groups, "second")
        assert [len(events) for events in await asyncio.gather(*map(collect, streams))] == [60] * 4
        world.list("a:1", "b:1")
        await until_there_are(groups, "first", "second")


async def test_the_last_group_stays_though_nobody_lists_it() -> None:
    """A directory may be wrong for a moment, and who serves is known."""
    world = World()
    world.start("a:1", "first")
    async with router(world, "a:1") as groups:
        await until_there_are(groups, "first")
        world.list()
        while not groups.members[0].is_gone:
            await asyncio.sleep(0)
        assert len(await collect(submit(groups, asked()))) == 20


async def test_a_group_that_drains_is_left() -> None:
    world = World()
    world.start("a:1", "first")
    world.start("b:1", "second")
    async with router(world, "a:1", "b:1") as groups:
        await until_there_are(groups, "first", "second")
        world.fleets["first"].states.put_nowait(True)
        while not any(each.is_draining for each in groups.members):
            await asyncio.sleep(0)
        await collect(submit(groups, asked()))
        assert not world.fleets["first"].plans
        world.fleets["first"].states.put_nowait(False)
        world.fleets["second"].states.put_nowait(True)
        while not groups.members[[each.name for each in groups.members].index("second")].is_draining:
            await asyncio.sleep(0)
        await collect(submit(groups, asked()))
        assert world.fleets["first"].plans


async def test_other_shards_at_the_same_address_are_another_group() -> None:
    world = World()
    world.start("a:1", "first")
    world.start("b:1", "second")
    async with router(world, "a:1", "b:1") as groups:
        await until_there_are(groups, "first", "second")
        fleet = world.fleets["first"]
        world.start("a:1", "third", weights_digest="other")
        fleet.facts = world.machines["a:1"].facts
        fleet.is_lost.set()
        await until_there_are(groups, "second", "third")
        assert len(groups.kinds) == 2


async def until_reached(world: World, groups: Groups, name: str, *targets: str) -> None:
    """Waits until a name has one group, which is reached at these targets."""
    def reached() -> list[str]:
        return [target for member in groups.members if member.engine._fleet is world.fleets[name]
                for target in world.targets[name]]

    async with asyncio.timeout(20):
        while reached() != [*targets] or [each.name for each in groups.members].count(name) != 1:
            await asyncio.sleep(0)


async def test_the_only_group_is_followed_by_one_of_its_name_elsewhere() -> None:
    """As a pod is that takes the place of another: its name stays, its address is another one."""
    world = World()
    world.start("a:1", "pod-0")
    async with router(world, "a:1") as groups:
        await until_reached(world, groups, "pod-0", "a:1")
        world.list()
        world.list("b:1")
        world.start("b:1", "pod-0")
        await until_reached(world, groups, "pod-0", "b:1")
        assert len(await collect(submit(groups, asked()))) == 20


async def test_one_that_came_before_the_other_of_its_name_had_left_joins_then(
    caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    world.start("a:1", "pod-0")
    world.start("c:1", "pod-1")
    async with router(world, "a:1", "b:1", "c:1") as groups:
        await until_there_are(groups, "pod-0", "pod-1")
        world.start("b:1", "pod-0")
        await asyncio.sleep(0.01)
        assert world.targets["pod-0"] == ["a:1"]
        assert any(each.startswith("the shard at b:1 gets no requests while a:1 is listed") for each in caplog.messages)
        world.list("b:1", "c:1")
        await until_reached(world, groups, "pod-0", "b:1")


async def test_a_machine_of_a_group_is_replaced_by_another() -> None:
    world = World()
    world.start("a:1", "both", rank=0, world_size=2)
    world.start("b:1", "both", rank=1, world_size=2)
    async with router(world, "a:1", "b:1") as groups:
        await until_reached(world, groups, "both", "a:1", "b:1")
        world.list("a:1", "c:1")
        world.start("c:1", "both", rank=1, world_size=2)
        await until_reached(world, groups, "both", "a:1", "c:1")


async def test_another_group_takes_over_the_address_of_one_that_was_away() -> None:
    """Each has one engine at a time, or each would take the other's stream of orders."""
    world = World()
    world.start("a:1", "first")
    async with router(world, "a:1") as groups:
        await until_there_are(groups, "first")
        left = world.fleets["first"]
        world.list()
        while not groups.members[0].is_gone:
            await asyncio.sleep(0)
        world.start("a:1", "second")
        world.list("a:1")
        await asyncio.sleep(0.01)
        assert [each.name for each in groups.members] == ["first"]
        left.facts = world.machines["a:1"].facts
        left.is_lost.set()
        await until_there_are(groups, "second")
        await asyncio.sleep(0.01)
        assert [each.name for each in groups.members] == ["second"]
        world.start("b:1", "third")
        world.list("b:1")
        await until_there_are(groups, "third")


async def test_a_group_that_is_listed_no_more_while_it_starts_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rosters, "RETRY_SECONDS", 0.0)
    world = World()
    world.start("a:1", "first")
    async with router(world, "a:1", "b:1") as groups:
        await until_there_are(groups, "first")
        world.num_lost = float("inf")
        world.start("b:1", "second")
        while "second" not in world.fleets:
            await asyncio.sleep(0)
        world.list("a:1")
        await asyncio.sleep(0.01)
        world.num_lost = 0
        await asyncio.sleep(0.01)
        assert [each.name for each in groups.members] == ["first"]
        world.list("a:1", "b:1")
        await until_there_are(groups, "first", "second")
