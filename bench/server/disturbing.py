"""Loads that are disturbed: streams whose tokens are timed while something dies, answers that are asked for again."""

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import median
from typing import Any

import aiohttp
import psutil

from penstock.bench.programs.children import Child
from penstock.bench.server.surviving_load import Got, ask_all, read_events


@dataclass(slots=True)
class Streamed:
    """One stream's tokens with their logprobs, and when each came."""

    tokens: list[tuple[int, float]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    is_whole: bool = False
    start: float = 0.0

    def longest_gap(self, killed_at: float = inf) -> float:
        """Returns the longest time from one token to the next, where the first follows a kill before it; that of a
        stream which is not whole has no end."""
        moments = [killed_at, *self.times] if self.times and killed_at < self.times[0] else self.times
        return max((b - a for a, b in itertools.pairwise(moments)), default=0.0) if self.is_whole else inf

    def pause_end(self, killed_at: float) -> float:
        """Returns the end of the longest pause between two tokens after the kill."""
        times = [killed_at, *(moment for moment in self.times if moment > killed_at)]
        return max((later - earlier, later) for earlier, later in itertools.pairwise(times))[1]


def steady_session(url: str) -> aiohttp.ClientSession:
    """Returns a session that neither counts connections nor ends them."""
    return aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=0),
                                 timeout=aiohttp.ClientTimeout(total=None))


async def ask_stream(session: aiohttp.ClientSession, found: Streamed, body: dict[str, Any]) -> None:
    """Sends a request, and notes its tokens until the last or an error."""
    found.start = time.perf_counter()
    async with session.post("/generate_stream", json=body) as response:
        async for _, event in read_events(response):
            if "token" not in event:
                break
            found.times.append(time.perf_counter())
            found.tokens.append((event["token"]["id"], event["token"]["logprob"]))
            found.is_whole = event["generated_text"] is not None


async def ask_streams(
    url: str, bodies: Sequence[dict[str, Any]], have_begun: Callable[[Iterable[object]], bool] = all,
    delay: float = 0.0, find: Callable[[], psutil.Process] | None = None,
    late: tuple[float, dict[str, Any]] | None = None,
) -> tuple[list[Streamed], float]:
    """Runs all streams. Kills the process that `find` returns so many seconds after any, or all, have a token; sends
    another request `late`, so long after the kill. Returns the streams, that one last, and when it killed."""
    streams = [Streamed() for _ in bodies]
    killed_at = inf
    async with steady_session(url) as session, asyncio.TaskGroup() as tasks:
        for found, body in zip(streams, bodies, strict=True):
            tasks.create_task(ask_stream(session, found, body))
        if find is not None:
            while not have_begun(found.times for found in streams):  # noqa: ASYNC110 (a look now and then costs less)
                await asyncio.sleep(0.01)
            await asyncio.sleep(delay)
            victim = await asyncio.to_thread(find)
            killed_at = time.perf_counter()
            victim.kill()
        if late is not None:
            await asyncio.sleep(late[0])
            streams.append(Streamed())
            tasks.create_task(ask_stream(session, streams[-1], late[1]))
    return streams, killed_at


def next_shard(child: Child) -> psutil.Process:
    """Returns a shard of those that a program has started."""
    return next(process for process in child.family() if "penstock.shard" in process.cmdline())


@dataclass(frozen=True)
class Survival:
    """The measurement; times in seconds."""

    requests: int
    kills: int
    dead: int
    """How many processes the kills have ended."""
    broken: int
    """How often a connection broke, or was refused, of which clients of the package asked again."""
    answers: int
    equal: int
    disturbed: float
    undisturbed: float
    back: float
    """From a kill to the next answer at the same address: the median, and the longest."""
    longest_back: float


class Killer:
    """Ends processes in the course of a load: `find` returns the next ones, and `url` is asked how soon somebody
    answers again."""

    def __init__(self, find: Callable[[], list[psutil.Process]], url: str, number: int, kills: int) -> None:
        self._find = find
        self._url = url
        self._moments = [number * (kill + 1) // (kills + 1) for kill in range(kills)]
        self._tasks: list[asyncio.Task[None]] = []
        self.victims: list[psutil.Process] = []
        self.back: list[float] = []

    @property
    def num_dead(self) -> int:
        """How many of the victims are dead."""
        return sum(map(_is_dead, self.victims))

    def note(self, num_done: int) -> None:
        """Kills if so many answers are the moment for it."""
        if self._moments and num_done >= self._moments[0]:
            self._moments.pop(0)
            found = self._find()
            if not found:
                raise LookupError("there is no process to be killed")
            for process in found:
                process.kill()
            self.victims += found
            self._tasks.append(asyncio.ensure_future(self._watch(time.perf_counter())))

    async def all_back(self) -> None:
        """Waits until each death was followed by an answer."""
        await asyncio.gather(*self._tasks)

    async def _watch(self, killed_at: float) -> None:
        async with aiohttp.ClientSession() as session:
            while True:
                try:
                    async with session.get(f"{self._url}/health"):
                        break
                except aiohttp.ClientConnectionError:
                    await asyncio.sleep(0.01)
        self.back.append(time.perf_counter() - killed_at)


def _is_dead(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class _Counting(logging.Handler):
    """Counts a client's messages of servers that are gone."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


async def measure(
    url: str, undisturbed_url: str, killer: Killer, number: int, at_once: int
) -> tuple[list[Got], list[Got], Survival]:
    """Runs the load with the killer, then once more without; returns the answers of both, and what was measured."""
    log, broken = logging.getLogger("penstock.client"), _Counting()
    log.addHandler(broken)
    log.setLevel(logging.INFO)
    begin = time.perf_counter()
    answers = await ask_all([url], number, at_once, note=killer.note)
    disturbed = time.perf_counter() - begin
    log.removeHandler(broken)
    await killer.all_back()
    begin = time.perf_counter()
    again = await ask_all([undisturbed_url], number, at_once, names=[answer.name for answer in answers])
    undisturbed = time.perf_counter() - begin
    equal = sum(one.content == other.content for one, other in zip(answers, again, strict=True))
    return answers, again, Survival(
        number, len(killer.back), killer.num_dead, broken.count, len(answers), equal,
        round(disturbed, 2), round(undisturbed, 2), round(median(killer.back), 2), round(max(killer.back), 2))
