"""Requests on several groups: where they go, and where they go on."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from penstock.contract.facts import Facts
from penstock.contract.sampling import Sampling
from penstock.router.engine.engine import Engine
from penstock.router.engine.request import Request
from penstock.router.errors import GenerationError, KilledGroup, Unhealthy
from penstock.router.fleet.errors import FleetError
from penstock.router.groups import groups as groups_module
from penstock.router.groups.groups import Groups
from penstock.router.groups.member import Member
from penstock.router.limits import Limits
from penstock.router.metrics.metrics import Metrics
from tests.fakes import FACTS, LIMITS, ScriptedFleet
from tests.scripted_engine import ListGrammar, collect, first_allowed, shifting, submit, token_ids


def asked(max_new_tokens: int = 20, first: int = 10, **settings: object) -> Request:
    return Request(input_ids=tuple(range(first, first + 40)), sampling=Sampling(), max_new_tokens=max_new_tokens,
                   **settings)  # type: ignore[arg-type]


class Scene:
    """Groups over scripted fleets, by their names."""

    def __init__(self) -> None:
        self.metrics = Metrics(LIMITS)
        self.groups = Groups(LIMITS, self.metrics)
        self.fleets: dict[str, ScriptedFleet] = {}
        self.members: dict[str, Member] = {}

    def add(
        self, name: str, facts: Facts = FACTS, max_downtime: float = 60.0, is_lasting: bool = False,
        limits: Limits = LIMITS,
    ) -> Member:
        facts = replace(facts, group=name)
        fleet = self.fleets[name] = ScriptedFleet(shifting, first_allowed)
        fleet.facts = facts
        engine = Engine(fleet, facts, limits.within(facts), self.metrics, 2, max_downtime, name=name,
                        is_one_of_many=True)
        member = self.members[name] = self.groups.add(engine, is_lasting)
        return member

    def lose(self, name: str, is_for_long: bool = True) -> None:
        """The group dies in its next call; it comes back when it may, if it is away for long."""
        fleet = self.fleets[name]
        if is_for_long:
            fleet.may_open.clear()
        fleet.failure = FleetError("it died")
        fleet.is_lost.set()

    def series(self, name: str) -> float:
        lines = self.metrics.exposition().decode().splitlines()
        return float(next(line for line in lines if line.startswith(name)).rsplit(" ", 1)[1])

    async def until_idle(self) -> None:
        for member in self.groups.members:
            while member.engine._in_flight or member.engine.num_requests:
                await asyncio.sleep(0)
            assert member.engine._scheduler.memory.num_held == 0


@asynccontextmanager
async def scene(*names: str, **settings: object) -> AsyncIterator[Scene]:
    made = Scene()
    for name in names:
        made.add(name, **settings)  # type: ignore[arg-type]
    task = asyncio.create_task(made.groups.run())
    try:
        async with asyncio.timeout(20):
            while not all(each.engine.has_group for each in made.groups.members):
                await asyncio.sleep(0)
            yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def undisturbed(request: Request) -> list[int]:
    async with scene("alone") as made:
        return token_ids(await collect(submit(made.groups, request)))


async def some_tokens(streams: list[object], number: int = 3) -> list[list[object]]:
    return [[await anext(stream) for _ in range(number)] for stream in streams]  # type: ignore[call-overload]


async def test_requests_are_spread_by_load() -> None:
    async with scene("a", "b", "c") as made:
        streams = [submit(made.groups, asked(first=100 * number)) for number in range(9)]
        assert [each.engine.num_requests for each in made.groups.members] == [3, 3, 3]
        await asyncio.gather(*map(collect, streams))
        await made.until_idle()
        assert made.series('penstock_choice{reason="load"}') == 9


async def test_a_prefix_meets_its_like() -> None:
    """Requests of two prefixes, all at once and one after the other: each prefix is computed in one group."""
    async with scene("a", "b") as made:
        streams = [submit(made.groups, asked(first=1000 * (number % 2))) for number in range(6)]
        assert [each.engine.num_requests for each in made.groups.members] == [3, 3]
        await asyncio.gather(*map(collect, streams))
        for number in range(4):
            await collect(submit(made.groups, asked(first=1000 * (number % 2))))
        computed = {name: {row.token_ids[0] for plan in fleet.plans for row in plan.rows if not row.is_decode}
                    for name, fleet in made.fleets.items()}
        assert not computed["a"] & computed["b"]
        assert made.series('penstock_choice{reason="prefix"}') == 8


@pytest.mark.parametrize("how", ["lost", "drained", "delisted"])
async def test_streams_go_on_in_another_group_at_once(how: str) -> None:
    request = asked(60)
    whole = await undisturbed(request)
    async with scene("a", "b") as made:
        streams = [submit(made.groups, replace(request, input_ids=(first, *request.input_ids[1:])))
                   for first in range(8)]
        had = await some_tokens(list(streams))
        assert made.members["a"].engine.num_requests == 4
        if how == "lost":
            made.lose("a")
        else:
            setattr(made.members["a"], "is_draining" if how == "drained" else "is_gone", True)
            made.members["a"].note()
        rest = await asyncio.gather(*map(collect, streams))
        for before, after in zip(had, rest, strict=True):
            assert token_ids([*before, *after]) == whole  # type: ignore[list-item]
        assert made.series(f'penstock_moved_requests{{cause="{"lost" if how == "lost" else "drained"}"}}') == 4
        assert made.series("penstock_move_pause_seconds_count") == 4
        assert made.series("penstock_moves_to_other_numerics") == 0
        assert (made.members["a"] in made.groups.members) == (how != "delisted")
        await made.until_idle()
        late = submit(made.groups, request)
        assert made.members["b"].engine.num_requests == 1
        await collect(late)


async def test_a_router_that_was_held_up_blames_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "STEP_SECONDS", 0.1)
    monkeypatch.setattr(groups_module, "LATE_SECONDS", 0.05)
    async with scene("a", "b") as made:
        for fleet in made.fleets.values():
            fleet.may_answer.clear()
        streams = [submit(made.groups, asked(first=100 * number)) for number in range(4)]
        while not all(each.engine._in_flight for each in made.groups.members):
            await asyncio.sleep(0)
        time.sleep(0.5)  # noqa: ASYNC251
        for _ in range(5):  # what came meanwhile takes its way
            await asyncio.sleep(0)
        for fleet in made.fleets.values():
            fleet.may_answer.set()
        await asyncio.gather(*map(collect, streams))
        assert made.series('penstock_moved_requests{cause="stuck"}') == 0


async def test_where_no_other_group_is_they_wait_and_the_next_that_opens_has_them() -> None:
    async with scene("a", "b") as made:
        made.lose("b")
        streams = [submit(made.groups, asked(60, first=100 * number)) for number in range(4)]
        had = await some_tokens(list(streams))
        made.lose("a")
        while made.groups.has_group:
            await asyncio.sleep(0)
        assert made.groups.is_healthy
        made.fleets["b"].may_open.set()
        rest = await asyncio.gather(*map(collect, streams))
        assert all(len(before) + len(after) == 60 for before, after in zip(had, rest, strict=True))
        assert made.members["a"].engine.num_requests == 0
        assert not made.members["a"].engine.has_group


async def test_a_new_group_takes_what_waits() -> None:
    async with scene("a") as made:
        stream = submit(made.groups, asked(60))
        had = await some_tokens([stream])
        made.lose("a")
        while made.groups.has_group:
            await asyncio.sleep(0)
        made.add("b")
        assert len(had[0]) + len(await collect(stream)) == 60


async def test_equal_numerics_come_first_and_others_are_counted() -> None:
    async with scene("a") as made:
        other = made.add("b", replace(FACTS, numerics="other"))
        while not other.engine.has_group:
            await asyncio.sleep(0)
        streams = [submit(made.groups, asked(60, first=100 * number)) for number in range(4)]
        await some_tokens(list(streams))
        equal = made.add("c")
        while not equal.engine.has_group:
            await asyncio.sleep(0)
        made.lose("a")
        while made.members["a"].engine.num_requests:
            await asyncio.sleep(0)
        assert equal.engine.num_requests == 2
        made.lose("c")
        await asyncio.gather(*map(collect, streams))
        assert made.series("penstock_moves_to_other_numerics") == 2


async def test_other_weights_never_go_on_with_an_answer() -> None:
    async with scene("a") as made:
        other = made.add("b", replace(FACTS, weights_digest="other"))
        while not other.engine.has_group:
            await asyncio.sleep(0)
        streams = [submit(made.groups, asked(60, first=100 * number)) for number in range(2)]
        await some_tokens(list(streams))
        made.lose("a")
        while made.members["a"].engine.has_group:
            await asyncio.sleep(0)
        assert made.members["a"].engine.num_requests == 1, "it waits for its own group"
        made.fleets["a"].may_open.set()
        await asyncio.gather(*map(collect, streams))
        assert made.series("penstock_moved_requests") == 0


async def test_a_group_that_comes_back_as_another_one_is_let_go() -> None:
    async with scene("a", "b") as made:
        streams = [submit(made.groups, asked(60, first=100 * number)) for number in range(4)]
        await some_tokens(list(streams))
        made.fleets["a"].facts = replace(made.fleets["a"].facts, weights_digest="other")
        made.lose("a", is_for_long=False)
        await asyncio.gather(*map(collect, streams))
        await made.members["a"].left.wait()
        assert [each.name for each in made.groups.members] == ["b"]


async def test_where_the_only_group_comes_back_as_another_one_its_requests_fail() -> None:
    async with scene("a") as made:
        stream = submit(made.groups, asked(60))
        await some_tokens([stream])
        made.fleets["a"].facts = replace(made.fleets["a"].facts, weights_digest="other")
        made.lose("a", is_for_long=False)
        with pytest.raises(GenerationError, match="the model was replaced by another one"):
            await collect(stream)
        with pytest.raises(Unhealthy):
            submit(made.groups, asked())
        assert made.groups.facts.vocab_size == FACTS.vocab_size, "requests can still be checked"


class Poisoned(ScriptedFleet):
    """Dies of every step with a row of the poison."""

    deadly: frozenset[int] = frozenset({666})

    async def submit(self, plan):  # type: ignore[no-untyped-def]
        await super().submit(plan)
        states = [row for row in plan.rows if row.token_ids and row.token_ids[0] in self.deadly]
        self._slots = {row.slot for row in states} | (getattr(self, "_slots", set()) - set(plan.cleared_slots))
        if any(row.slot in self._slots for row in plan.rows):
            self._slots = set()
            raise FleetError("poisoned")


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_a_poisoned_request_takes_nobody_with_it(number: int) -> None:
    made = Scene()
    for name in "abc"[:number]:
        made.add(name)
        fleet = Poisoned(shifting, first_allowed)
        fleet.facts = made.fleets[name].facts
        made.members[name].engine._fleet = fleet
        made.fleets[name] = fleet
    task = asyncio.create_task(made.groups.run())
    try:
        async with asyncio.timeout(30):
            while not all(each.engine.has_group for each in made.groups.members):
                await asyncio.sleep(0)
            streams = [submit(made.groups, asked(30, first=1000 + 100 * each)) for each in range(12)]
            await some_tokens(list(streams), 2)
            poison = submit(made.groups, asked(30, first=666))
            with pytest.raises(KilledGroup):
                await collect(poison)
            assert [len(events) for events in await asyncio.gather(*map(collect, streams))] == [28] * 12
            deaths = made.series("penstock_group_restarts")
            assert deaths <= 9, f"{deaths} deaths"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_stranded_suspect_goes_on_elsewhere_when_its_group_stays_away() -> None:
    """It was narrowed down, so it stays with the group that died of it; but not for ever."""
    async with scene("a", max_downtime=0.2) as made:
        stream = submit(made.groups, asked(60))
        had = await some_tokens([stream])
        for _ in range(2):
            made.lose("a", is_for_long=False)
            await made.fleets["a"].has_plan.wait()
            while not made.members["a"].engine.has_group:
                await asyncio.sleep(0)
        made.fleets["a"].may_open.clear()
        made.lose("a")
        other = made.add("b")
        while made.members["a"].engine.has_group or not other.engine.has_group:
            await asyncio.sleep(0)
        assert len(had[0]) + len(await collect(stream)) == 60


async def test_grammars_and_prompt_logprobs_move_too() -> None:
    grammar = ListGrammar(*({70 + number, 80 + number} for number in range(30)))
    constrained = asked(30, grammar=grammar)
    explained = asked(30, wants_prompt_logprobs=True)
    wanted = [await undisturbed(each) for each in (constrained, explained)]
    async with scene("a", "b") as made:
        streams = [submit(made.groups, each) for each in (constrained, explained) * 2]
        had = await some_tokens(list(streams), 5)
        made.members["a"].is_draining = True
        made.members["a"].note()
        while made.members["a"].engine.num_requests:
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        made.lose("b", is_for_long=False)
        rest = await asyncio.gather(*map(collect, streams))
        for number, (before, after) in enumerate(zip(had, rest, strict=True)):
            assert token_ids([*before, *after]) == wanted[number % 2]  # type: ignore[list-item]
        assert streams[1].prompt_logprobs.logprobs == [-token_id / 10 for token_id in range(11, 50)]
        await made.until_idle()


async def test_an_answer_that_is_gone_on_with_never_has_other_bits() -> None:
    """Not where it begins, and not when its group is lost: it waits for that."""
    async with scene("a", "b") as made:
        other = made.add("c", replace(FACTS, numerics="other"))
        while not other.engine.has_group:
            await asyncio.sleep(0)
        assert {facts.numerics for facts in made.groups.kinds} == {"scripted", "other"}
        known = [replace(asked(60, first=100 * number), bits=other.engine.facts.bits, needs_bits=True)
                 for number in range(3)]
        streams = [submit(made.groups, request, output_so_far=[70, 77]) for request in known]
        assert other.engine.num_requests == 3
        await some_tokens(list(streams))
        made.lose("c")
        while other.engine.has_group:
            await asyncio.sleep(0)
        assert other.engine.num_requests == 3
        made.fleets["c"].may_open.set()
        assert [len(events) for events in await asyncio.gather(*map(collect, streams))] == [55] * 3
        with pytest.raises(GenerationError, match="was replaced by another"):
            submit(made.groups, replace(known[0], bits=("no such weights",)))


async def test_what_is_under_way_goes_where_its_weights_are() -> None:
    """As when the engine's process is a new one, to which its fronts tell how far their answers are."""
    async with scene("a") as made:
        other = made.add("b", replace(FACTS, weights_digest="other"))
        while not other.engine.has_group:
            await asyncio.sleep(0)
        request = replace(asked(60), bits=other.engine.facts.bits)
        stream = submit(made.groups, request, output_so_far=[70, 77, 80])
        assert other.engine.num_requests == 1
        assert len(await collect(stream)) == 57
        with pytest.raises(GenerationError, match="was replaced by another"):
            submit(made.groups, replace(request, bits=("no such weights",)), output_so_far=[70])


async def test_new_requests_are_named_after_the_kind_with_the_least_to_do() -> None:
    async with scene("a") as made:
        other = made.add("b", replace(FACTS, numerics="other"))
        while not other.engine.has_group:
            await asyncio.sleep(0)
        streams = [submit(made.groups, replace(asked(60, first=100 * number), bits=made.groups.kinds[0].bits))
                   for number in range(6)]
        assert [each.engine.num_requests for each in made.groups.members] == [3, 3]
        await asyncio.gather(*map(collect, streams))


async def test_an_answer_that_was_begun_with_other_bits_fails_when_its_group_has_them_no_more() -> None:
    """Other requests go on: a group may come back with other kernels."""
    async with scene("a") as made:
        engine = made.members["a"].engine
        bound, free = asked(40, bits=engine.facts.bits, needs_bits=True), asked(40, first=100, bits=engine.facts.bits)
        streams = [submit(made.groups, request) for request in (bound, free)]
        await some_tokens(list(streams))
        made.lose("a")
        while engine.has_group:
            await asyncio.sleep(0)
        made.fleets["a"].facts = replace(engine.facts, numerics="other")
        made.fleets["a"].may_open.set()
        with pytest.raises(GenerationError, match="would go on as another one"):
            await collect(streams[0])
        assert len(await collect(streams[1])) == 37
