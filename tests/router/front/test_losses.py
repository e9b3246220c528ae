"""The engine's process dies, or a front does: streams go on, or fail with a reason, and nothing is kept of the dead."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.router.engine.request import Request
from penstock.router.engine.stream import Event
from penstock.router.errors import (
    GenerationError,
    KilledGroup,
    Unhealthy,
)
from penstock.router.front.remote_engine import MAX_DEATHS
from penstock.router.grammar.matcher import GrammarError
from tests.fakes import FACTS, LIMITS, ScriptedFleet
from tests.router.front.fronts import (
    ASKED,
    LISTED,
    ListGrammars,
    front,
    front_that_lost_its_engine,
    make_fleet,
    serving,
    until,
)
from tests.scripted_engine import collect, submit


async def test_a_front_that_dies_ends_its_requests_and_returns_its_permits(path: Path) -> None:
    fleet = make_fleet()
    async with serving(path, fleet) as (engine, _):
        async with front(path) as remote:
            held = remote.permit(5)
            await held.__aenter__()
            for _ in range(3):
                submit(remote, replace(ASKED, max_new_tokens=1000))
            await until(lambda: len(engine.members[0].engine._requests) == 3)
            assert engine._permits == LIMITS.max_concurrent_requests - 5
            fleet.may_answer.clear()
        await until(lambda: not engine.members[0].engine._requests)
        await until(lambda: engine._permits == LIMITS.max_concurrent_requests)


async def test_what_kills_the_engines_process_is_given_up(path: Path) -> None:
    """It comes back each time, and dies before it has said a word. What got tokens in between is not to blame."""
    hellos: list[Any] = []
    async with front_that_lost_its_engine(path, max_downtime=60.0) as (remote, stream):
        question = asyncio.ensure_future(remote.grammars.compile(LISTED))

        class Dying(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                self.transport = transport

            def data_received(self, data: bytes) -> None:
                hellos.append(data)
                loop.call_later(0.01, self.transport.abort)

        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(Dying, str(path))
        await asyncio.sleep(0.5)
        server.close()
        assert 2 < len(hellos) < 20, "there is a pause between two attempts"
        assert not question.done(), "nobody has died of it: no process was connected for long enough"
        for _ in range(MAX_DEATHS - 1):
            async with serving(path) as (engine, _):
                fleet = engine.members[0].engine._fleet
                assert isinstance(fleet, ScriptedFleet)
                fleet.may_answer.clear()
                await until(lambda: remote.has_group)
                other = submit(remote, ASKED)
            await until(lambda: not remote.has_group)
        with pytest.raises(KilledGroup, match=f"{MAX_DEATHS} times in a row the engine's process died while it ran"):
            await collect(stream)
        async with serving(path, grammars=ListGrammars()):
            assert len(await collect(other)) == 30
            assert len(await collect(submit(remote, ASKED))) == 30
        with pytest.raises(GrammarError):
            await question


async def test_an_answer_does_not_go_on_with_another_model(path: Path) -> None:
    async with front_that_lost_its_engine(path, max_downtime=60.0) as (remote, stream):
        fleet = make_fleet()
        fleet.facts = replace(FACTS, weights_digest="another")
        async with serving(path, fleet, facts=fleet.facts):
            with pytest.raises(GenerationError, match="the model was replaced by another one"):
                await collect(stream)
            assert len(await collect(submit(remote, ASKED))) == 30


@pytest.mark.parametrize("asked", [ASKED, replace(ASKED, grammar=LISTED), replace(ASKED, stop=("no such text",))])
async def test_the_engines_process_dies_and_streams_go_on(path: Path, asked: Request) -> None:
    """What the client has is not told again, and the rest is as it would have been."""
    grammars = ListGrammars()
    async with AsyncExitStack() as stack:
        first = AsyncExitStack()
        engine, _ = await first.enter_async_context(serving(path, grammars=grammars))
        remote = await stack.enter_async_context(front(path))
        whole = await collect(submit(remote, asked))
        fleet = engine.members[0].engine._fleet
        assert isinstance(fleet, ScriptedFleet)
        streams = [submit(remote, asked) for _ in range(3)]
        async with remote.permit(3):
            begun: list[list[Event]] = [[await anext(stream)] for stream in streams]
            fleet.may_answer.clear()
            late = submit(remote, asked)
            await first.aclose()
            await until(lambda: not remote.has_group)
            later = submit(remote, asked)
            second = await stack.enter_async_context(serving(path, grammars=grammars))
            for stream, events in zip(streams, begun, strict=True):
                assert events + await collect(stream) == whole
            assert await collect(late) == await collect(later) == whole
            await until(lambda: second[0]._permits == LIMITS.max_concurrent_requests - 3)


async def test_requests_fail_when_the_engines_process_stays_away(path: Path) -> None:
    async with front_that_lost_its_engine(path, max_downtime=0.2) as (remote, stream):
        assert remote.is_healthy
        asked = asyncio.ensure_future(remote.permit().__aenter__())
        with pytest.raises(Unhealthy):
            await collect(stream)
        with pytest.raises(Unhealthy):
            await asked
        assert not remote.is_healthy
        with pytest.raises(Unhealthy):
            submit(remote, ASKED)
        with pytest.raises(Unhealthy):
            await remote.permit().__aenter__()
        async with serving(path):
            await until(lambda: remote.is_healthy and remote.has_group)
            assert len(await collect(submit(remote, ASKED))) == 30


async def test_requests_fail_at_once_when_nobody_starts_the_engine_again(path: Path) -> None:
    async with front_that_lost_its_engine(path, max_downtime=60.0) as (remote, stream):
        remote.keep_waiting(0.0)
        with pytest.raises(Unhealthy):
            await collect(stream)
