"""Beam searches through the engine: whatever happens, the answers are those of a search that nothing disturbs."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.contract.row import Row
from penstock.contract.sampling import Sampling
from penstock.router.engine.request import Request
from penstock.router.engine.text_path import Piece, TextPath
from penstock.router.engine.trace import Trace
from penstock.router.errors import GenerationError, KilledGroup
from penstock.router.fleet.errors import FleetError
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.scheduler import Scheduler
from tests.eventually import until
from tests.fakes import LIMITS
from tests.router.engine.mirror_fleet import MIRRORED, MirrorFleet
from tests.router.engine.searches import REQUESTS, answers, ask, check_idle, expected, request
from tests.router.front.fronts import front, serving
from tests.scripted_engine import TOKENIZER, collect, running_engine, running_groups, submit


@pytest.mark.parametrize(("depth", "max_slots"), [(1, 128), (2, 128), (2, 3), (1, 1)])
async def test_alone_and_together(depth: int, max_slots: int) -> None:
    async with running_engine(MirrorFleet(), depth, facts=MIRRORED, limits=replace(LIMITS, max_slots=max_slots)) as it:
        alone = [await answers(ask(it, each)) for each in REQUESTS[:2]]
        together = await asyncio.gather(*(answers(ask(it, each)) for each in REQUESTS))
        await check_idle(it)
    assert together == [expected(each) for each in REQUESTS]
    assert alone == together[:2]


@pytest.mark.parametrize("at", [1, 2, 7, 15])
async def test_after_a_loss(at: int) -> None:
    fleet = MirrorFleet()
    async with running_engine(fleet, 2, facts=MIRRORED) as engine:
        fleet.fail_at("next_result", at)
        assert await asyncio.gather(*(answers(ask(engine, each)) for each in REQUESTS)) == [*map(expected, REQUESTS)]
        await check_idle(engine)


@pytest.mark.parametrize("at", [1, 3, 12])
async def test_moved_to_another_group(at: int) -> None:
    fleets = [MirrorFleet(), MirrorFleet()]
    traces = [Trace(bytes(24)) for _ in REQUESTS]
    async with running_groups(*fleets, depth=2, facts=MIRRORED) as groups:
        await until(lambda: all(each.engine.has_group for each in groups.members))
        fleets[0].fail_at("next_result", at)
        streams = [ask(groups, replace(each, trace=trace)) for each, trace in zip(REQUESTS, traces, strict=True)]
        await until(lambda: not groups.members[0].engine.has_group or not groups.members[0].engine.num_requests)
        assert await asyncio.gather(*map(answers, streams)) == [*map(expected, REQUESTS)]
        moves = [note for trace in traces for note in trace.notes if note.name == "moved"]
        assert {note.facts["generated_tokens"] for note in moves} == {at - 1}
        for member in groups.members:
            await check_idle(member.engine)


async def test_from_another_process(tmp_path: Path) -> None:
    fleet = MirrorFleet()
    async with serving(tmp_path / "engine", fleet, facts=MIRRORED) as (groups, _), front(tmp_path / "engine") as remote:
        found = await asyncio.gather(*(answers(ask(remote, each)) for each in REQUESTS))
        assert found == [*map(expected, REQUESTS)]
        await until(lambda: not groups.members[0].engine._requests)


async def test_stop_strings_end_candidates(tmp_path: Path) -> None:
    """In the engine's process and in another one."""
    fleet, plain = MirrorFleet(), request(1)
    text = TOKENIZER.decode([expected(plain)[0][0][3]])
    asked = replace(plain, stop=(text,))
    async with serving(tmp_path / "engine", fleet, facts=MIRRORED) as (groups, _), front(tmp_path / "engine") as remote:
        found = await answers(ask(groups, asked))
        assert await answers(ask(remote, asked)) == found
    assert FinishReason.STOP_SEQUENCE in {reason for _, _, reason in found}
    for tokens, _, reason in found:
        assert (reason is FinishReason.STOP_SEQUENCE) == (text in TOKENIZER.decode(tokens))


async def test_a_client_that_leaves_ends_all_beams() -> None:
    fleet = MirrorFleet()
    async with running_engine(fleet, 2, facts=MIRRORED) as engine:
        streams = ask(engine, request(0, max_new_tokens=500))
        await until(lambda: len(engine._requests) == 4)
        assert engine.num_requests == 1
        async with streams[0]:
            pass
        await check_idle(engine)


async def test_what_is_not_a_number_fails_the_search_alone() -> None:
    """That of one of its beams, which has come to 24 tokens; the prompts of others have more."""
    fleet, others = MirrorFleet(), [request(number) for number in (3, 4)]
    poisoned: list[Row] = []

    def is_nan(row: Row) -> bool:
        is_first = row.end == 24 and not poisoned
        poisoned.extend([row] * is_first)
        return is_first

    fleet.is_nan = is_nan
    async with running_engine(fleet, 2, facts=MIRRORED) as engine:
        tasks = [asyncio.create_task(answers(ask(engine, each))) for each in others]
        with pytest.raises(GenerationError, match="not a number"):
            await answers(ask(engine, request(0)))
        assert await asyncio.gather(*tasks) == [*map(expected, others)]
        await check_idle(engine)


async def test_what_fails_in_the_text_path_ends_the_search_alone() -> None:
    class Failing(TextPath):
        def push(self, token_id: int) -> Piece:
            raise RuntimeError("boom")

    async with running_engine(MirrorFleet(), 2, facts=MIRRORED) as engine:
        failing, fine = ask(engine, request(0), Failing), ask(engine, request(1))
        with pytest.raises(GenerationError, match="RuntimeError in the text path"):
            await answers(failing)
        assert await answers(fine) == expected(request(1))
        await check_idle(engine)


@pytest.mark.parametrize("verb", ["extend", "fork"])
async def test_what_fails_amid_a_choice_ends_the_search_alone(verb: str) -> None:
    def fail(self: Scheduler, *arguments: object) -> None:
        undo.undo()
        raise RuntimeError("boom")

    async with running_engine(MirrorFleet(), 2, facts=MIRRORED) as engine:
        failing = ask(engine, request(0))
        await until(lambda: len(engine._requests) == 4)
        with pytest.MonkeyPatch.context() as undo:
            undo.setattr(Scheduler, verb, fail)
            with pytest.raises(GenerationError, match="RuntimeError in the beam search"):
                await answers(failing)
        assert await answers(ask(engine, request(1))) == expected(request(1))
        await check_idle(engine)


async def test_a_search_that_kills_is_given_up_and_others_go_on() -> None:
    """It kills where one of its beams has come to 27 tokens; the prompts of others have more."""
    others = [request(number) for number in (3, 4)]
    async with running_engine(MirrorFleet(kills=lambda row: row.end == 27), 2, facts=MIRRORED) as engine:
        tasks = [asyncio.create_task(answers(ask(engine, each))) for each in others]
        with pytest.raises(KilledGroup):
            await answers(ask(engine, request(0)))
        assert await asyncio.gather(*tasks) == [*map(expected, others)]
        await check_idle(engine)


async def test_memory_that_shrinks_fails_a_search_that_needs_more() -> None:
    fleet = MirrorFleet()
    async with running_engine(fleet, 2, facts=MIRRORED) as engine:
        streams = ask(engine, request(2, max_new_tokens=200))
        await until(lambda: len(fleet.plans) > 5)
        fleet.facts = replace(MIRRORED, num_blocks=3, memory_id="two")
        fleet.mirror = fleet.mirror.__class__(16, 3)
        fleet.failure = FleetError("lost")
        with pytest.raises(GenerationError, match="KV memory"):
            await answers(streams)
        await check_idle(engine)


async def test_searches_and_others_run_side_by_side() -> None:
    plain = Request((7, 8, 9), Sampling(), 10)
    async with running_engine(MirrorFleet(), 2, facts=MIRRORED) as engine:
        alone = await collect(submit(engine, plain))
        search, other = await asyncio.gather(answers(ask(engine, REQUESTS[3])), collect(submit(engine, plain)))
    assert (search, other) == (expected(REQUESTS[3]), alone)
