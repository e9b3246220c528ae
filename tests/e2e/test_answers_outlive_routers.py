"""Answers outlive the router, a front, a whole server: none is lost, and none is another one."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.bench.programs.balancer import Balancer
from penstock.bench.server.disturbing import Killer, measure
from penstock.bench.server.surviving_load import Got
from penstock.client import AsyncClient
from tests.e2e.server import Server, serve

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
AT_ONCE = 64
STEP_TIMEOUT = 5
FRONT = '"role":"front"'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve(tmp_path_factory.mktemp("server"), "--step-timeout", str(STEP_TIMEOUT)) as server:
        yield server


def assert_equal(answers: list[Got], again: list[Got]) -> None:
    differing = [(one, other) for one, other in zip(answers, again, strict=True) if one != other]
    assert not differing, f"{len(differing)} answers differ, for example {differing[0]}"


async def test_answers_outlive_routers(server: Server, every_case: bool) -> None:
    """Of all kinds: whole and streamed, drawn with and without a seed, greedy, two at once, with a grammar, and by a
    client that knows nothing but the header of the event stream."""
    number, kills = (800, 5) if every_case else (350, 3)
    killer = Killer(lambda: server.children("router"), server.url, number, kills)
    answers, again, survival = await measure(server.url, server.url, killer, number, AT_ONCE)
    assert (len(answers), survival.kills, survival.dead) == (number, kills, kills)
    assert survival.broken > 8 * kills  # the other clients still wait to ask again
    assert_equal(answers, again)


async def test_a_stream_outlives_a_router_that_hangs(server: Server) -> None:
    parameters: dict[str, Any] = {"max_new_tokens": 700, "ignore_eos": True, "do_sample": True}
    async with AsyncClient(server.url) as client:
        stream = client.generate_stream("import os\n", **parameters)
        tokens = [(await anext(stream)).token.id]
        [router] = server.children("router")
        router.suspend()
        tokens += [event.token.id async for event in stream]
        again = client.generate_stream("import os\n", answer=stream.answer, **parameters)
        assert tokens == [event.token.id async for event in again]
    assert len(tokens) == 700
    assert not router.is_running()


async def test_streams_of_a_router_that_is_told_to_end_go_on(tmp_path: Path) -> None:
    """Those that are left when its time is over are told so, which to the client is no end."""
    parameters: dict[str, Any] = {"max_new_tokens": 1900, "ignore_eos": True, "do_sample": True}
    with serve(tmp_path, "--graceful-termination-timeout", "1") as server:
        async with AsyncClient(server.url) as client:
            streams = [client.generate_stream(f"import os  # {number}\n", **parameters) for number in range(2)]
            first = [(await anext(stream)).index for stream in streams]
            [router] = server.children("router")
            router.terminate()
            rest = await asyncio.gather(*(_indices(stream) for stream in streams))
        assert all([one, *others] == list(range(1, 1901)) for one, others in zip(first, rest, strict=True))
        assert not router.is_running()


async def _indices(stream: Any) -> list[int]:
    return [event.index async for event in stream]


@pytest.mark.every_case
async def test_answers_outlive_fronts(tmp_path: Path) -> None:
    """Also the process of the engine, with one of them."""
    with serve(tmp_path, "--api-workers", "2") as server:
        [engine] = [process for process in server.children("router") if not is_front(process)]

        def next_victims() -> list[psutil.Process]:
            front = next(filter(is_front, server.children("router")))
            return [front, engine] if killer.victims else [front]

        number = 132
        killer = Killer(next_victims, server.url, number, 2)
        answers, again, survival = await measure(server.url, server.url, killer, number, 32)
        assert (survival.kills, survival.dead) == (2, 3)
        assert engine in killer.victims
        assert survival.broken > 0
        assert_equal(answers, again)


def is_front(process: psutil.Process) -> bool:
    return FRONT in " ".join(process.cmdline())


async def test_answers_outlive_a_whole_server(tmp_path: Path, every_case: bool) -> None:
    """Of two behind a balancer, of which one does not come back."""
    number = 800 if every_case else 220
    with contextlib.ExitStack() as stack:
        second = stack.enter_context(serve(tmp_path))
        first = stack.enter_context(dying(tmp_path))
        async with Balancer([first.port, second.port]) as balancer:
            killer = Killer(lambda: [psutil.Process(first.process.pid), *first.processes()], balancer.url, number, 1)
            answers, again, survival = await measure(balancer.url, second.url, killer, number, AT_ONCE)
    assert survival.broken > 0
    assert_equal(answers, again)


@contextlib.contextmanager
def dying(tmp_path: Path) -> Iterator[Server]:
    """A server that is killed, which leaves its files behind."""
    folder = tmp_path / "a"
    folder.mkdir()
    with contextlib.suppress(AssertionError), serve(folder) as server:
        yield server
        server.process.wait(10)
