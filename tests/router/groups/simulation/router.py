"""A router's process: it finds groups, answers clients, and may be killed at any moment."""

import asyncio
from collections.abc import Coroutine
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from penstock.checkpoints.adapter_files import CONFIG
from penstock.contract.facts import Facts
from penstock.router.adapters.files import AdapterFiles
from penstock.router.adapters.registry import Registry
from penstock.router.adapters.source import AdapterSource
from penstock.router.api.http.sse import EventPlaces
from penstock.router.errors import Overloaded, RouterError
from penstock.router.fleet.fleet import GrpcFleet
from penstock.router.generation.answers import answering
from penstock.router.generation.asking import Asking
from penstock.router.generation.identity import Wish, identify
from penstock.router.generation.poison_memory import PoisonMemory
from penstock.router.generation.service import ServerInfo, Service
from penstock.router.groups.roster import Roster
from penstock.router.limits import Limits
from penstock.router.metrics.metrics import Metrics
from tests.router.groups.simulation.asking import PlaceGrammars, PlainTokenizer
from tests.router.groups.simulation.watched import WatchedEngine, WatchedGroups

if TYPE_CHECKING:
    from tests.router.groups.simulation.client import Client
    from tests.router.groups.simulation.world import World

ADAPTERS = {"one": "a1", "two": "a2", "refused": "refused"}
"""The digests of adapters, by name."""


class Uncounted:
    """Takes the place of metrics, which are a third of a history's time, in most of them."""

    def of(self, group: str) -> "Uncounted":
        return self

    def __getattr__(self, name: str) -> Any:
        return _UNCOUNTED if name in ("adapters", "deadlines", "groups") else _count_nothing


def _count_nothing(*args: Any, **named: Any) -> None:
    """Nothing is counted."""


_UNCOUNTED = Uncounted()


@cache
def metrics(are_counted: bool) -> Any:
    """Returns metrics for all routers of this process: to define the series takes as long as a history."""
    limits = Limits(max_input_tokens=39, max_total_tokens=40, max_batch_prefill_tokens=32, max_slots=6)
    return Metrics(limits) if are_counted else _UNCOUNTED


@cache
def _all_adapters() -> TemporaryDirectory[str]:
    return TemporaryDirectory()


@cache
def adapter_folder(name: str) -> Path:
    folder = Path(_all_adapters().name) / name
    folder.mkdir()
    (folder / CONFIG).write_text('{"peft_type": "LORA"}')
    return folder


def read_adapter(folder: Path, max_weights: int) -> AdapterFiles:
    return AdapterFiles(ADAPTERS[folder.name], 10)


class SimulatedRouter:
    """Has the groups of the world's directory, and a task for each request."""

    groups_class = WatchedGroups
    engine_class = WatchedEngine
    fleet_class = GrpcFleet
    roster_class = Roster

    def __init__(self, world: "World", number: int) -> None:
        self._world = world
        self.number = number
        self.is_up = False
        self.is_dead = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._clients: dict[Client, None] = {}
        sources = [AdapterSource(name, adapter_folder(name), name) for name in ADAPTERS]
        self._adapters = Registry(sources, max_bytes=world.adapter_bytes, read=read_adapter)
        self._adapters._next_number = 1 + 100 * number  # instead of one that is drawn

    async def start(self) -> None:
        """Waits for the first group, and begins to take requests."""
        world = self._world
        roster = self.roster_class(world.directory, world.network.connect, self.fleet_class)
        watching = self._run(roster.watch())
        await self._run(roster.first())
        await asyncio.sleep(world.load_seconds)  # as it loads the tokenizer

        async def watch() -> None:
            await watching

        self.groups = self.groups_class(world.limits, metrics(world.are_counted), self._adapters, background=watch)
        self.groups.judge = world.judge
        world.judge.begin(self.groups)
        roster.begin(self.groups, self._engine)
        self._service = Service(
            self.groups, PlainTokenizer(), metrics(world.are_counted), ServerInfo("model", "0", "none"),
            PoisonMemory(600.0), PlaceGrammars(), adapters=self._adapters)
        self._run(self.groups.run())
        self.is_up = True
        world.tell(f"router {self.number} is up")

    def _engine(self, fleet: GrpcFleet, facts: Facts) -> WatchedEngine:
        world = self._world
        engine = self.engine_class(
            fleet, facts, world.limits, metrics(world.are_counted), world.depth, world.max_downtime, self._adapters,
            name=facts.group, is_one_of_many=True)
        engine.judge = world.judge
        return engine

    def serve(self, client: "Client") -> asyncio.Task[None]:
        """Answers a client's request, as far as it has no answer yet."""
        self._clients[client] = None
        return self._run(self._serve(client))

    def kill(self) -> None:
        """Ends the process: nothing more leaves it, and whoever it answered is cut off."""
        self.is_up, self.is_dead = False, True
        for engine in (each.engine for each in self.groups.members):
            engine._downtime.end()
        for client in self._clients:
            client.cut_off()
        for task in self._tasks:
            task.cancel()

    async def _serve(self, client: "Client") -> None:
        try:
            await self._answer(client)
        except RouterError as error:
            if not self.is_dead:
                is_full = self.groups._permits < client.ask.num_answers
                self._world.judge.check(is_full or not isinstance(error, Overloaded), lambda: (
                    f"client {client.ask.number} is refused, with {self.groups._permits} permits left"))
                client.failed(error)
        finally:
            self._clients.pop(client, None)

    async def _answer(self, client: "Client") -> None:
        """Does for a request what the handlers of routes that stream do."""
        world = self._world
        specs = [client.ask.spec()]
        with Asking(self._service) as asking:
            identity = await identify(self._service, specs, self.wish_of(client), [], is_stream=True)
            client.know(identity)
            world.note_seeds({identity.name.seed, identity.seed_of(0)}, client.ask)
            places = EventPlaces(identity)
            async with answering(asking, specs, identity, is_stream=True) as answers:
                async for answer, event in answers:
                    place = places.take(answer.index)
                    if place is None:
                        client.know_again(answer.index, event)
                    elif not self.is_dead:
                        client.take(answer.index, event, place.decode())
                client.answered()

    def wish_of(self, client: "Client") -> Wish:
        return client.wish()

    def _run(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)
        return task

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self.is_dead:
            self._world.fault(error)
