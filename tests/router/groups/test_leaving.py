"""Requests that have a reason to stay in a group that should be left, until they have none any more."""

import asyncio
import threading
import time
from dataclasses import replace

import pytest

from penstock.router.errors import Unhealthy
from penstock.router.groups.member import Member
from tests.fakes import FACTS
from tests.router.groups.test_groups import (
    Scene,
    asked,
    collect,
    scene,
    some_tokens,
    submit,
    token_ids,
    undisturbed,
)
from tests.scripted_engine import ListGrammar, ListMatcher


async def lose_for_a_moment(made: Scene, member: Member, *, may_answer: bool = True) -> None:
    made.lose(member.name, is_for_long=False)
    while member.engine.has_group:
        await asyncio.sleep(0)
    if not may_answer:
        made.fleets[member.name].may_answer.clear()
    while not member.engine.has_group:
        await asyncio.sleep(0)


async def test_a_suspect_leaves_a_draining_group_once_it_is_acquitted() -> None:
    async with scene("a") as made:
        origin = made.members["a"]
        stream = submit(made.groups, asked(100))
        had = await some_tokens([stream])
        await lose_for_a_moment(made, origin)
        await lose_for_a_moment(made, origin, may_answer=False)
        other = made.add("b")
        while not other.engine.has_group:
            await asyncio.sleep(0)
        origin.is_draining = True
        origin.note()
        assert origin.engine.num_requests == 1, "a suspect that was narrowed down has left"
        made.fleets["a"].may_answer.set()
        while len(had[0]) < 6:
            had[0].append(await anext(stream))
        made.fleets["a"].may_answer.clear()  # or it might end before anybody looks
        while origin.engine.num_requests:
            await asyncio.sleep(0)
        assert not origin.engine.is_stuck, "it has left for another reason"
        assert other.engine.num_requests == 1
        made.fleets["a"].may_answer.set()
        assert len(had[0]) + len(await collect(stream)) == 100


async def test_a_group_that_is_gone_is_let_go_once_its_last_request_has_ended() -> None:
    async with scene("a") as made:
        origin = made.members["a"]
        stream = submit(made.groups, asked(20))
        other = made.add("b", replace(FACTS, weights_digest="1"))
        while not other.engine.has_group:
            await asyncio.sleep(0)
        origin.is_gone = True
        origin.note()
        assert len(made.groups.members) == 2
        assert len(await collect(stream)) == 20
        while made.groups.members != [other]:
            await asyncio.sleep(0)


async def test_nothing_is_told_any_more_of_a_group_that_was_let_go() -> None:
    """It is let go in the midst of its engine's work: as it notes that the group, which is gone, is lost."""
    async with scene("a") as made:
        origin, other = made.members["a"], made.add("b")
        while not other.engine.has_group:
            await asyncio.sleep(0)
        streams = [submit(made.groups, asked(60, first=first)) for first in (100, 200)]
        await some_tokens(list(streams))
        origin.is_gone = True
        made.lose("a")
        assert [len(events) for events in await asyncio.gather(*map(collect, streams))] == [57, 57]
        await made.until_idle()
        assert made.groups.members == [other]
        told = made.metrics.exposition().decode()
        assert 'group="b"' in told
        assert 'group="a"' not in told
        assert made.series("tgi_batch_max_total_tokens") == FACTS.capacity


async def test_a_stranded_suspect_goes_on_elsewhere_when_its_group_is_another_one() -> None:
    """It stays with the group that died of it twice, until there is no such group any more."""
    request = asked(60)
    wanted = await undisturbed(request)
    async with scene("a") as made:
        origin = made.members["a"]
        stream = submit(made.groups, request)
        had = await some_tokens([stream])
        await lose_for_a_moment(made, origin)
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


class SlowGrammar(ListGrammar):
    """Takes its sixth token only when it may."""

    def __init__(self) -> None:
        super().__init__(*({70 + number, 80 + number} for number in range(20)))
        self.may_take = threading.Event()
        self.is_asked = threading.Event()

    def start(self) -> ListMatcher:
        return SlowMatcher(self)


class SlowMatcher(ListMatcher):
    def push(self, token_id: int) -> None:
        if self._num_tokens == 5 and isinstance(self._grammar, SlowGrammar):
            self._grammar.is_asked.set()
            self._grammar.may_take.wait(10)
        super().push(token_id)


async def test_a_token_that_its_grammar_has_not_seen_is_computed_again() -> None:
    grammar = SlowGrammar()
    grammar.may_take.set()
    wanted = await undisturbed(asked(20, grammar=grammar))
    grammar.may_take.clear()
    grammar.is_asked.clear()
    async with scene("a") as made:
        origin = made.members["a"]
        stream = submit(made.groups, asked(20, grammar=grammar))
        had = await some_tokens([stream], 5)
        while not grammar.is_asked.is_set():
            await asyncio.sleep(0)
        other = made.add("b")
        while not other.engine.has_group:
            await asyncio.sleep(0)
        origin.is_draining = True
        origin.note()
        assert other.engine.num_requests == 1
        grammar.may_take.set()
        assert token_ids([*had[0], *await collect(stream)]) == wanted  # type: ignore[list-item]


async def test_nobody_moves_where_there_is_no_room() -> None:
    async with scene("a") as made:
        origin = made.members["a"]
        small = made.add("small", replace(FACTS, num_blocks=4))
        while not small.engine.has_group:
            await asyncio.sleep(0)
        streams = [submit(made.groups, asked(number, first=100 * number)) for number in (10, 100)]
        small_one, large_one = streams
        assert origin.engine.num_requests >= 1
        made.lose("a")
        while origin.engine.has_group:
            await asyncio.sleep(0)
        assert origin.engine.num_requests == 1
        assert len(await collect(small_one)) == 10
        made.fleets["a"].may_open.set()
        assert len(await collect(large_one)) == 100


async def test_all_groups_are_given_up_though_one_is_let_go_at_that() -> None:
    async with scene("a", "b") as made:
        streams = [submit(made.groups, asked(60, first=100 * number)) for number in range(4)]
        made.members["a"].is_gone = True
        made.groups.give_up()
        assert not any(each.engine.is_healthy for each in made.members.values())
        for stream in streams:
            with pytest.raises(Unhealthy):
                await collect(stream)


async def test_an_answer_does_not_pause_before_it_was_asked_for() -> None:
    """The group was lost long before; the pause ends in the group that joins."""
    async with scene("a") as made:
        made.lose("a")
        while made.members["a"].engine.has_group:
            await asyncio.sleep(0)
        await asyncio.sleep(0.3)
        asked_at = time.monotonic()
        stream = submit(made.groups, asked(3))
        made.add("b")
        assert len(await collect(stream)) == 3
        assert made.series("penstock_move_pause_seconds_count") == 1
        assert made.series("penstock_move_pause_seconds_sum") <= time.monotonic() - asked_at
