"""One history: groups, routers one after the other, clients and weather, all drawn from a seed."""

import asyncio
import random
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from penstock.router.engine.request import Request
from penstock.router.engine.stream import Queue
from penstock.router.engine.text_path import TextPath
from penstock.router.fleet import fleet
from penstock.router.generation import answers, identity
from penstock.router.limits import Limits
from tests.router.groups.simulation.asking import Ask, Expected
from tests.router.groups.simulation.client import Client
from tests.router.groups.simulation.clock import virtual_time
from tests.router.groups.simulation.directory import SimulatedDirectory
from tests.router.groups.simulation.grammars import PlaceGrammar
from tests.router.groups.simulation.group import Group, make_facts
from tests.router.groups.simulation.judge import Judge
from tests.router.groups.simulation.network import Network, PlainWire
from tests.router.groups.simulation.oracle import PLAIN
from tests.router.groups.simulation.router import SimulatedRouter
from tests.router.groups.simulation.watched import WatchedStream
from tests.router.groups.simulation.weather import Weather

MAX_TOTAL = 40
"""Tokens of a prompt and its answer."""
PATIENCE = 60.0
"""Seconds within which everything has ended once the weather is fair."""
SETTLE = 3.0


class World:
    """Draws what there is, and lets it happen: `live` returns once all clients have their answers and nothing is left,
    or something went wrong."""

    router_class = SimulatedRouter
    network_class = Network
    mixed, poisoned, constrained = 0.3, 0.25, 0.25
    """How often groups differ, one request kills its group, and an answer has a grammar."""
    faults = ("kill", "kill", "kill", "kill", "hang", "slow", "cut", "cut", "partition", "drain", "drain", "vanish")
    """What goes wrong with groups, each as often as it is there."""
    patches: tuple[tuple[Any, str, Any], ...] = ()
    """Modules, names and values in the place of theirs."""

    def __init__(self, seed: int) -> None:
        loop = asyncio.get_running_loop()
        self.random = chance = random.Random(seed)
        self.are_counted = seed % 20 == 0
        self.begun_at = loop.time()
        self.story: list[tuple[float, str]] = []
        is_mixed = chance.random() < self.mixed
        self.has_other_weights = is_mixed and chance.random() < 0.5
        self.has_other_numerics = is_mixed and not self.has_other_weights
        self.has_adapters = chance.random() < 0.3
        self.adapter_bytes = chance.choice([40, 80])
        self.depth = chance.choice([1, 2, 2, 3])
        self.max_downtime = chance.choice([1.0, 3.0])
        most = chance.choice([8, 16, 32])
        self.limits = Limits(
            max_input_tokens=MAX_TOTAL - 1, max_total_tokens=MAX_TOTAL, max_batch_prefill_tokens=most,
            max_slots=chance.randint(2, 6), min_step_tokens=most, speculate=chance.choice([0, 0, 3]),
            max_concurrent_requests=chance.choice([3, 128, 128, 128]))
        self.judge = Judge(self.limits, self.max_downtime, self.tell)
        self.directory = SimulatedDirectory()
        self.groups = [self._group(number) for number in range(chance.choice([1, 2, 2, 3]))]
        token_seconds = chance.choice([0.0005, 0.002, 0.005])
        for group in self.groups:
            group.token_seconds = token_seconds
        self.network = self.network_class(chance.getrandbits(32), self.groups, chance.choice([0.2, 1.0, 1.0, 5.0]),
                               chance.random() < 0.5)
        self.router: SimulatedRouter | None = None
        self.load_seconds = chance.choice([0.0, 0.1, 0.6])
        self._num_routers = 0
        self._serial = 0
        self._asks: dict[int, Ask] = {}
        seconds = chance.uniform(1.0, 4.0)
        self.weather = Weather(self, chance.getrandbits(32), seconds, chance.randint(0, 6),
                               chance.choice([0, 0, 0, 1, 1, 2]))
        heads = [tuple(chance.randint(PLAIN, 9) for _ in range(9)) for _ in range(2)]
        num_clients, num_poisons = chance.randint(2, 6), int(chance.random() < self.poisoned)
        self.clients = [self._client(number, heads, seconds, number < num_poisons) for number in range(num_clients)]
        self._tasks: list[asyncio.Task[Any]] = []

    def tell(self, what: str) -> None:
        """Notes what happens."""
        self.story.append((asyncio.get_running_loop().time() - self.begun_at, what))

    def fault(self, error: BaseException) -> None:
        """Takes an error that must not be."""
        self.judge.check(False, lambda: f"{type(error).__name__}: {error}")

    def randbits(self, number: int) -> int:
        """Takes the place of `secrets` where seeds are drawn."""
        return self.random.getrandbits(number)

    def note_seeds(self, seeds: Iterable[int], ask: Ask) -> None:
        """Notes whose seeds they are."""
        self._asks.update(dict.fromkeys(seeds, ask))

    def make_stream(self, request: Request, text: TextPath, queue: Queue, *, is_guessed: bool) -> WatchedStream:
        """Takes the place of `Stream` where answers begin."""
        seed, branch = request.sampling.seed, request.sampling.branch
        self._serial += 1
        return WatchedStream(self.judge, Expected(self._asks[seed], seed, branch), request, text, queue, self._serial,
                             is_guessed)

    def kills(self, seed: int, branch: int, position: int) -> bool:
        ask = self._asks[seed]
        if ask.kills_at is None or branch or position < ask.kills_at:
            return False
        self.judge.killed(seed)
        return True

    async def live(self) -> None:
        for group in self.groups:
            self.directory.list(group.address)
            asyncio.get_running_loop().call_later(self.random.random() * 0.1, self.weather._start, group, group.life)
        tasks = [asyncio.create_task(work) for work in (
            self._begin_router(0.0), self.weather.run(), self._tick(), *(client.run() for client in self.clients))]
        for task in tasks:
            task.add_done_callback(self._see)
        clients = asyncio.gather(*tasks[3:], return_exceptions=True)
        failure = asyncio.create_task(self.judge.failed_at_all.wait())
        await asyncio.wait([clients, failure], timeout=self.weather._seconds + PATIENCE,
                           return_when=asyncio.FIRST_COMPLETED)
        self.judge.check(clients.done(), lambda: "requests never end: those of the clients " + ", ".join(
            str(client.ask.number) for client in self.clients if not client.fate))
        if self.judge.violation is None:
            await self._settle(failure)

    async def _settle(self, failure: "asyncio.Task[Any]") -> None:
        """Waits until everything has come to rest, and looks at what is left."""
        if not self.weather.is_fair:
            self.weather.clear_up()
        for _ in range(20):
            await asyncio.wait([failure], timeout=SETTLE)
            router = self.router
            if router is not None and router.is_up and router.groups.has_group and not any(
                    each.engine._in_flight for each in router.groups.members):
                break
        if self.judge.violation is None:
            self.judge.end()

    def kill_router(self) -> None:
        router = self.router
        if router is None or not router.is_up or self.weather.is_fair:
            return
        self.tell(f"router {router.number} is killed")
        self.network.is_router_dead = True
        router.kill()
        self.router = None
        self.judge.groups = None
        self._tasks.append(asyncio.create_task(self._begin_router(self.random.uniform(0.02, 1.0))))
        self._tasks[-1].add_done_callback(self._see)

    async def _begin_router(self, after: float) -> None:
        await asyncio.sleep(after)
        self.network.is_router_dead = False
        self._num_routers += 1
        self.router = self.router_class(self, self._num_routers)
        await self.router.start()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(0.2)
            self.judge.tick()

    def _see(self, task: "asyncio.Task[Any]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fault(error)

    def _group(self, number: int) -> Group:
        chance = self.random
        facts = make_facts("w1", "n1", chance.randint(14, 40), self.has_adapters)
        if self.has_other_weights and number:
            facts = replace(facts, weights_digest=chance.choice(["w1", "w1", "w2"]))
        if self.has_other_numerics and number:
            facts = replace(facts, numerics=chance.choice(["n1", "n1", "n2"]))
        name = "abc"[number] if chance.random() < 0.9 else "a"  # as a pod has that takes the place of another
        return Group(chance.getrandbits(32), name, f"10.0.0.1:{4000 + 100 * number}", facts,
                     chance.choice([1, 1, 1, 1, 2]), self.kills, self.tell, self.fault)

    def _client(self, number: int, heads: list[tuple[int, ...]], seconds: float, is_poison: bool) -> Client:
        chance = self.random
        head = chance.choice([(), (), *heads])
        prompt = head + tuple(chance.randint(PLAIN, 9) for _ in range(chance.randint(1, 8)))
        most = min(chance.choice([4, 10, 20]), MAX_TOTAL - len(prompt))
        num_answers = chance.choice([1, 1, 1, 2])
        has_grammar = chance.random() < self.constrained
        ask = Ask(
            number, prompt, most, chance.choice([None, chance.getrandbits(64)]), num_answers,
            grammar=PlaceGrammar(chance.randint(0, 3), chance.randint(1, most)) if has_grammar else None,
            adapter=chance.choice([None, "one", "two", "two", "refused"]) if self.has_adapters else None,
            ignore_eos=chance.random() < 0.5, has_stop_token=chance.random() < 0.2,
            has_stop_text=chance.random() < 0.2, wants_prompt_logprobs=chance.random() < 0.15,
            kills_at=len(prompt) + chance.randint(0, min(3, most - 1)) if is_poison else None)
        patience = chance.randint(0, most - 1) if chance.random() < 0.15 and not is_poison else None
        return Client(self, ask, chance.random() * seconds * 0.6, patience,
                      chance.random() < 0.5, chance.getrandbits(32))


@contextmanager
def _patched(patches: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    with ExitStack() as stack:
        for module, name, value in patches:
            stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, value)
        yield


async def _live(seed: int, world_class: type[World]) -> World:
    """Lives in a world where the router's fleets reach its shards, and send plans as they are."""
    world = world_class(seed)
    parts = [(fleet, "ShardClient", world.network.connect), (fleet, "wire", PlainWire),
             (answers, "Stream", world.make_stream), (identity, "secrets", world)]
    with _patched([*parts, *world.patches]):
        await world.live()
    return world


def simulate(seed: int, world_class: type[World] = World) -> World:
    """Runs the history of a seed. AssertionError if something happens in it that must not."""
    with virtual_time(seed) as loop:
        world = loop.run_until_complete(_live(seed, world_class))
    violation = world.judge.violation
    assert violation is None, (
        f"{violation}. See it alone: python -m tests.router.groups.simulation {seed}")
    return world
