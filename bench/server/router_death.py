"""Whether answers outlive their server: `python -m penstock.bench.server.router_death`.

Many requests of all kinds run at once on the demo model while the process of the router is killed now and then, or with
`--servers 2` one of two whole servers behind a balancer. Then the same answers are asked for again by their names, of a
server that nobody disturbs, and compared bit by bit. It tells how many came and were equal, how long both took, and
after how many seconds a router that was killed answered again.
"""

import asyncio
import json
import logging
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from statistics import median

import aiohttp
import click
import psutil

from penstock.bench.programs.balancer import Balancer
from penstock.bench.programs.children import Child, exit_on_sigterm, free_port
from penstock.bench.programs.peers import own_server
from penstock.bench.programs.root import DEMO_MODEL
from penstock.bench.server.running import running
from penstock.bench.server.surviving_load import Got, ask_all


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


def routers(child: Child, word: str = "") -> list[psutil.Process]:
    """Returns a server's processes of the router; with a `word`, the first that has it in its arguments."""
    found = [process for process in child.family() if process.cmdline()[2:4] == ["-m", "penstock.router"]]
    return [process for process in found if any(word in part for part in process.cmdline())][:1] if word else found


async def one_server(child: Child, port: int, number: int, at_once: int, kills: int, victim: str = "") -> Survival:
    """Kills processes of the router: all, or the first with the word `victim` in its arguments."""
    url = f"http://127.0.0.1:{port}"
    killer = Killer(lambda: routers(child, victim), url, number, kills)
    return (await measure(url, url, killer, number, at_once))[2]


async def two_servers(children: list[Child], ports: list[int], number: int, at_once: int) -> Survival:
    """Kills all processes of the first server, which does not come back."""
    async with Balancer(ports) as balancer:
        killer = Killer(children[0].family, balancer.url, number, 1)
        return (await measure(balancer.url, f"http://127.0.0.1:{ports[1]}", killer, number, at_once))[2]


@click.command(help=__doc__)
@click.option("--requests", default=800, show_default=True)
@click.option("--at-once", default=64, show_default=True)
@click.option("--kills", type=click.IntRange(1), default=5, show_default=True, help="Of the one server's router.")
@click.option("--victim", default="", help="A word in the arguments of the one process of the router that is killed, "
              "such as '\"role\":\"front\"'.  [default: all are]")
@click.option("--servers", type=click.IntRange(1, 2), default=1, show_default=True)
@click.option("--shards", default=1, show_default=True)
@click.option("--flag", "flags", multiple=True, help="A flag of the launcher, such as --flag=--api-workers=2.")
def main(
    requests: int, at_once: int, kills: int, victim: str, servers: int, shards: int, flags: tuple[str, ...]
) -> None:
    exit_on_sigterm()
    ports = [free_port() for _ in range(servers)]
    with ExitStack() as stack:
        if servers == 1:
            child = stack.enter_context(running(
                own_server(DEMO_MODEL, ports[0], ["--num-shard", str(shards), *flags]), ports[0]))
            found = asyncio.run(one_server(child, ports[0], requests, at_once, kills, victim))
            print(json.dumps(asdict(found)), flush=True)
        else:
            # The first is not to end by itself, as `running` expects.
            other = stack.enter_context(running(
                own_server(DEMO_MODEL, ports[1], ["--num-shard", str(shards), *flags]), ports[1]))
            try:
                with running(own_server(DEMO_MODEL, ports[0], ["--num-shard", str(shards), *flags]), ports[0]) as first:
                    found = asyncio.run(two_servers([first, other], ports, requests, at_once))
                    print(json.dumps(asdict(found)), flush=True)
            except click.ClickException as error:
                if "under load" not in error.message:
                    raise
    if found.equal < requests:
        sys.exit(1)


if __name__ == "__main__":
    main()
