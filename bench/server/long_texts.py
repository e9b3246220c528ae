"""Measures the cost of the longest texts to everybody else: `python -m penstock.bench.server.long_texts`.

Eight clients at once send a body of 1.9 MB of punctuation to each route that tokenises; some leave half a second later,
some stay for the answer. Meanwhile others ask /livez and generate short answers. It prints how late those were, the
router's memory beside what it announced at the start, and for how long work went on for clients that had left.
"""

import asyncio
import io
import json
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import aiohttp
import click
import grpc
import psutil

from penstock.bench.programs.children import Child, exit_on_sigterm, free_port
from penstock.bench.programs.peers import own_server
from penstock.bench.programs.root import DEMO_MODEL
from penstock.bench.server.running import running
from penstock.protos import penstock_pb2 as pb
from penstock.protos import services

MIB = 1 << 20
NUM_CLIENTS = 8
NUM_CHARACTERS = 1_900_000
STAY_SECONDS = 0.5
"""How long clients wait before they leave."""
PAUSE_SECONDS = 0.02
IDLE_SHARE = 0.3
"""The share of a core below which the router counts as idle."""
SHORT = {"inputs": "import os\n\ndef walk(path):", "parameters": {"max_new_tokens": 20}}
USUAL_SECONDS = 3.0


def punctuation(seed: int) -> str:
    """Returns a text that fills a body."""
    return "".join(random.Random(seed).choices("!?.,;:-_()[]{}*&^%$#@", k=NUM_CHARACTERS))


def bodies(text: str) -> dict[str, Any]:
    """Returns a body of each route."""
    chat = {"messages": [{"role": "user", "content": text}], "max_tokens": 5}
    native = {"inputs": text, "parameters": {"max_new_tokens": 5}}
    return {"/tokenize": {"inputs": text}, "/generate": native, "/generate_stream": native,
            "/generate, truncated": {"inputs": text, "parameters": {"max_new_tokens": 5, "truncate": 100}},
            "/v1/chat/completions": chat, "/chat_tokenize": chat, "/v1/completions": {"prompt": text, "max_tokens": 5},
            "/invocations": native, "/vertex": {"instances": [native]}, "gRPC Tokenize": None, "gRPC Generate": None}


@dataclass
class Cost:
    """The cost of an attack: statuses by number, seconds that /livez and short answers took, bytes of the router's
    process at the most and of its children, and seconds for which work went on after the last client was gone."""

    statuses: dict[str, int] = field(default_factory=dict)
    livez: list[float] = field(default_factory=list)
    short: list[float] = field(default_factory=list)
    router: int = 0
    children: int = 0
    work: float = 0.0


class Bench:
    """A server under attack. `announced` are the most bytes of the router's process, and of its children."""

    def __init__(self, child: Child, port: int, rpc_port: int, session: aiohttp.ClientSession) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._session = session
        self._text = punctuation(0)
        self._stub = services.stub(grpc.aio.insecure_channel(
            f"127.0.0.1:{rpc_port}", options=[("grpc.max_receive_message_length", -1)]), pb)
        [self._router] = [each for each in child.family() if each.cmdline()[2:4] == ["-m", "penstock.router"]]
        [self.announced] = [int(size) * MIB for size in re.findall(r"router: at most (\d+) MiB", child.output)]
        self.announced_children = sum(
            int(size) * MIB for size in re.findall(r"at most (\d+) MiB in other processes", child.output))

    async def usual(self) -> Cost:
        """Returns how long others wait when there is no attack."""
        cost = Cost()
        async with self._watched(cost):
            await asyncio.sleep(USUAL_SECONDS)
        return cost

    async def attack(self, route: str, body: Any, leaves: bool) -> Cost:
        """Sends the body by all clients at once, and waits until the router is idle again."""
        cost = Cost()
        content = b"" if body is None else json.dumps(body).encode()
        ask: Callable[[], Awaitable[str]] = (lambda: self._call(route)) if body is None else (
            lambda: self._post(route.partition(",")[0], content))
        async with self._watched(cost):
            asking = [asyncio.ensure_future(ask()) for _ in range(NUM_CLIENTS)]
            if leaves:
                await asyncio.sleep(STAY_SECONDS)
                for each in asking:
                    each.cancel()
            for found in await asyncio.gather(*asking, return_exceptions=True):
                name = found if isinstance(found, str) else "left" if leaves else type(found).__name__
                cost.statuses[name] = cost.statuses.get(name, 0) + 1
            began = time.monotonic()
            await self._idle()
            cost.work = time.monotonic() - began
        return cost

    @asynccontextmanager
    async def _watched(self, cost: Cost) -> AsyncIterator[None]:
        watching = [asyncio.create_task(each) for each in (
            self._repeat(cost.livez, self._livez), self._repeat(cost.short, self._short), self._measure(cost))]
        yield
        for each in watching:
            each.cancel()
        await asyncio.gather(*watching, return_exceptions=True)

    async def _repeat(self, times: list[float], ask: Callable[[], Awaitable[None]]) -> None:
        while True:
            began = time.monotonic()
            try:
                await ask()
            finally:
                times.append(time.monotonic() - began)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _livez(self) -> None:
        async with self._session.get(f"{self.url}/livez") as response:
            response.raise_for_status()

    async def _short(self) -> None:
        async with self._session.post(f"{self.url}/generate", json=SHORT) as response:
            response.raise_for_status()
            await response.read()

    async def _measure(self, cost: Cost) -> None:
        while True:
            cost.router = max(cost.router, self._router.memory_info().rss)
            children = 0
            for each in self._router.children(recursive=True):
                with suppress(psutil.Error):
                    children += each.memory_full_info().pss
            cost.children = max(cost.children, children)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _post(self, path: str, content: bytes) -> str:
        async with self._session.post(
                self.url + path, data=io.BytesIO(content), headers={"content-type": "application/json"}) as response:
            async for _ in response.content.iter_any():
                pass
            return str(response.status)

    async def _call(self, name: str) -> str:
        try:
            if name == "gRPC Tokenize":
                await self._stub.Tokenize(pb.TokenizeRequest(inputs=self._text))
            else:
                await self._stub.Generate(pb.GenerateRequest(inputs=self._text))
        except grpc.aio.AioRpcError as error:
            return str(error.code().name)
        return "OK"

    async def _idle(self) -> None:
        """Waits until neither the router nor its children have used much of a core for a while."""
        calm = 0
        while calm < 3:
            before, at = self._seconds(), time.monotonic()
            await asyncio.sleep(0.25)
            share = (self._seconds() - before) / (time.monotonic() - at)
            calm = calm + 1 if share < IDLE_SHARE else 0

    def _seconds(self) -> float:
        seconds = 0.0
        for each in [self._router, *self._router.children(recursive=True)]:
            with suppress(psutil.Error):
                times = each.cpu_times()
                seconds += times.user + times.system
        return seconds


@asynccontextmanager
async def bench(flags: list[str]) -> AsyncIterator[Bench]:
    """Starts a server, and yields what attacks it."""
    port, rpc_port = free_port(), free_port()
    with running(own_server(DEMO_MODEL, port, ["--grpc-port", str(rpc_port), *flags]), port) as child:
        connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            yield Bench(child, port, rpc_port, session)


def row(name: str, cost: Cost) -> str:
    return (f"{name:32} /livez at most {max(cost.livez):6.3f} s; short answers {median(cost.short):6.3f} s, at most "
            f"{max(cost.short):6.3f}; router {cost.router / MIB:5.0f} MiB, its processes {cost.children / MIB:5.0f}; "
            f"work for {cost.work:4.1f} s more; {cost.statuses}")


async def run(flags: list[str], only: str) -> None:
    all_bodies = bodies(punctuation(0))
    async with bench(flags) as server:
        print(f"announced: router {server.announced / MIB:.0f} MiB, its processes "
              f"{server.announced_children / MIB:.0f}")
        print(row("nothing", await server.usual()), flush=True)
        for route, body in all_bodies.items():
            for leaves in (True, False):
                if only in route:
                    cost = await server.attack(route, body, leaves)
                    print(row(route + (", they leave" if leaves else ", they stay"), cost), flush=True)


@click.command(help=__doc__)
@click.option("--flag", "flags", multiple=True, help="A flag of the launcher.")
@click.option("--only", default="", help="Routes that have this in their name.")
def main(flags: tuple[str, ...], only: str) -> None:
    exit_on_sigterm()
    asyncio.run(run(list(flags), only))


if __name__ == "__main__":
    main()
