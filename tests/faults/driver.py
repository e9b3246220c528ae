"""Lets a schedule of faults befall a server beside its load, and sees that it is as it was at the end."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import aiohttp

from tests.e2e.client import scrape
from tests.faults.clients import Clients, one_shot_clients
from tests.faults.faults import FAULTS, Stage
from tests.faults.ledger import Ledger, Strike
from tests.faults.load import make_asks
from tests.faults.report import Report
from tests.faults.scene import NUM_SHARDS, Broken, Scene, scene
from tests.faults.schedule import Event, Kind, schedule

NUM_CLIENTS = 10
PROBES = ("/health", "/livez", "/readyz")
PROBE_SECONDS = 0.2
NUM_LAST_LINES = 60
MAX_ROUTER_GROWTH = 80 << 20
"""Bytes that the router may have grown by: what it keeps of prompts and answers is bounded by far less."""
MAX_MORE_FDS = 8


class Failure(AssertionError):
    """Raised for the first thing that went wrong, with what is needed to see it again."""


async def run(
    folder: Path, seed: int, kinds: Sequence[Kind], *, seconds: float | None = None, once: bool = False
) -> Report:
    """Runs faults for so many seconds, or every kind `once`. Raises Failure at the first answer that is lost or
    changed, or when the server does not come back or has lost something at the end."""
    with scene(folder) as stage:
        possible = [kind for kind in kinds if kind.needs in stage.possible]
        rng = random.Random(seed)
        async with one_shot_clients() as session:
            play = Play(stage, session, Clients(session, stage.url, ledger := Ledger(), make_asks(rng)), ledger)
            events = schedule(seed, possible)
            chosen = [hurried(next(events)) for _ in possible] if once else events
            try:
                await play.run(_until(chosen, seconds), seed)
            except* Exception as errors:
                raise Failure(_failure(stage, ledger, seed, first_of(errors))) from errors
        return Report(seed, ledger, [kind for kind in kinds if kind not in possible],
                      stage.log.read_bytes())


def hurried(event: Event) -> Event:
    """Returns the fault with a quarter of the pause before it."""
    return replace(event, pause=event.pause / 4)


def _until(events: "Iterator[Event] | Sequence[Event]", seconds: float | None) -> Iterator[Event]:
    end: float | None = None
    for event in events:
        end = end or time.monotonic() + (seconds or float("inf"))
        if time.monotonic() >= end:
            return
        yield event


class Play:
    """One server, its clients and its faults."""

    def __init__(self, scene: Scene, session: aiohttp.ClientSession, clients: Clients, ledger: Ledger) -> None:
        self._scene = scene
        self._session = session
        self._clients = clients
        self._ledger = ledger

    async def run(self, events: Iterator[Event], seed: int) -> None:
        self._scene.start()
        await self._scene.until_ready(self._session)
        await self._clients.learn()
        await self._until_idle()
        num_fds, num_bytes = self._size()
        async with _background(self._probe()), asyncio.TaskGroup() as tasks:
            for number in range(NUM_CLIENTS):
                tasks.create_task(self._clients.run(f"{seed}-{number}"))
            try:
                await self._strike_all(events)
            finally:
                self._clients.may_ask = False
        await self._scene.until_ready(self._session)
        await self._until_idle()
        await self._scene.until("the router has as few open files as before",
                                lambda: self._size()[0] <= num_fds + MAX_MORE_FDS)
        self._see_processes()
        if (grown := self._size()[1] - num_bytes) > MAX_ROUTER_GROWTH:
            raise Broken(f"the router has grown by {grown >> 20} MiB")
        await self._end()

    async def _strike_all(self, events: Iterator[Event]) -> None:
        """Lets the faults come one after another; two at the same time where they overlap."""
        last: asyncio.Task[None] | None = None
        async with asyncio.TaskGroup() as tasks:
            for event in events:
                if last is not None and not event.overlaps:
                    await last
                await asyncio.sleep(event.pause)
                print(event, flush=True)
                last = tasks.create_task(self._strike(event, last))

    async def _strike(self, event: Event, before: "asyncio.Task[None] | None") -> None:
        """Lets one fault come, and waits until the server is ready again; it is over no earlier than the one
        before."""
        strike = self._ledger.begin(event)
        strike.log_begin = self._scene.log.stat().st_size
        await FAULTS[event.kind.name](Stage(self._scene, self._clients, event, strike))
        strike.struck_at = strike.struck_at or time.monotonic()
        await self._scene.until_ready(self._session)
        if before is not None:
            await before
        strike.over_at = time.monotonic()
        strike.log_end = self._scene.log.stat().st_size

    async def _probe(self) -> None:
        """Asks for the server's health, again and again. Raises Broken if /livez would have a healthy router ended."""
        while True:
            for route in PROBES:
                status = await self._status(route)
                self._ledger.probes.append((time.monotonic(), route, status))
            await asyncio.sleep(PROBE_SECONDS)

    async def _status(self, route: str) -> int | None:
        with suppress(aiohttp.ClientError, TimeoutError):
            async with asyncio.timeout(1.0), self._session.get(self._scene.url + route) as response:
                return response.status
        return None

    async def _until_idle(self) -> None:
        """Waits until nothing runs and no memory is held, which is at once after the last answer."""
        async def used() -> float:
            series = await scrape(self._session, self._scene.url)
            return (series['penstock_kv_blocks{state="used"}'] + series["tgi_batch_current_size"]
                    + series["tgi_queue_size"])

        deadline = time.monotonic() + 10
        while held := await used():
            if time.monotonic() > deadline:
                raise Broken(f"{held:g} blocks and requests are left, and nobody waits for an answer")
            await asyncio.sleep(0.05)

    def _size(self) -> tuple[int, int]:
        """The router's open files and its bytes of memory."""
        [router] = self._scene.server.children("router")
        return router.num_fds(), router.memory_info().rss

    def _see_processes(self) -> None:
        children = self._scene.launcher.children(recursive=True)
        [router] = self._scene.server.children("router")
        renderers = router.children()  # one that was killed is a zombie until a conversation needs it
        if len(renderers) > 2 or len(children) != 1 + NUM_SHARDS + len(renderers):
            raise Broken(f"other processes run than the router, {NUM_SHARDS} shards and template processes: {children}")

    async def _end(self) -> None:
        """Ends the server in order. Raises Broken if anything of it is left."""
        children = self._scene.launcher.children(recursive=True)
        if status := self._scene.server.terminate():
            raise Broken(f"the launcher ended with {status}")
        await self._scene.until_gone(children)
        if left := list(self._scene.temporary.iterdir()):
            raise Broken(f"the server has left {left}")


@asynccontextmanager
async def _background(work: "asyncio.Future[None]") -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def first_of(error: BaseException) -> BaseException:
    """Returns the first error of a group, however deep."""
    return first_of(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _failure(stage: Scene, ledger: Ledger, seed: int, error: BaseException) -> str:
    faults = "\n".join(_line(strike) for strike in ledger.strikes[-3:]) or "no fault had come"
    lines = stage.log.read_text(errors="replace").splitlines()[-NUM_LAST_LINES:] if stage.log.exists() else []
    return "\n".join([
        f"{type(error).__name__}: {error}",
        f"The last faults of seed {seed} (`make chaos SEED={seed}` plays them again):", faults,
        "The end of the server's log:", *lines])


def _line(strike: Strike) -> str:
    state = "over" if strike.over_at else "not over"
    return f"    {strike.event}; {time.monotonic() - strike.began_at:.1f} s ago, {state}"
