"""Machines that groups are found at, by a directory of their addresses, without processes."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.contract.facts import Facts
from penstock.contract.shard_facts import ShardFacts
from penstock.router.engine.engine import Engine
from penstock.router.fleet.errors import FleetError, OtherFacts
from penstock.router.groups.groups import Groups
from penstock.router.groups.roster import Roster
from penstock.router.metrics.metrics import Metrics
from tests.fakes import FACTS, LIMITS, ScriptedFleet
from tests.scripted_engine import shifting


@dataclass
class Machine:
    """The shards that listen at an address: the rank of the first, how many there are, and their group's facts."""

    facts: Facts
    rank: int = 0
    shards_here: int = 1


@dataclass
class World:
    """Machines by their addresses, and a directory of some addresses."""

    machines: dict[str, Machine] = field(default_factory=dict)
    listings: asyncio.Queue[frozenset[str]] = field(default_factory=asyncio.Queue)
    fleets: dict[str, "RealFleet"] = field(default_factory=dict)
    targets: dict[str, list[str]] = field(default_factory=dict)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    num_lost: float = 0
    """How many more fleets are lost while they are asked."""
    num_changed: int = 0
    """How many more come back with another number of shards."""

    async def watch(self) -> AsyncGenerator[frozenset[str], None]:
        while True:
            yield await self.listings.get()

    def list(self, *addresses: str) -> None:
        self.listings.put_nowait(frozenset(addresses))

    def roster(self) -> Roster:
        return Roster(self, lambda address: Client(self, address),  # type: ignore[arg-type, return-value]
                      lambda targets: RealFleet(self, targets))  # type: ignore[arg-type, return-value]

    def start(self, address: str, name: str, rank: int = 0, shards_here: int = 1, **facts: Any) -> None:
        self.machines[address] = Machine(replace(FACTS, group=name, **facts), rank, shards_here)
        self.started.set()
        self.started = asyncio.Event()


class Client:
    """Asks a machine, however long that takes."""

    def __init__(self, world: World, address: str) -> None:
        self._world = world
        self._address = address

    async def describe(self) -> ShardFacts:
        while self._address not in self._world.machines:
            await self._world.started.wait()
        machine = self._world.machines[self._address]
        return ShardFacts(machine.rank, machine.rank == 0, machine.facts, machine.shards_here)

    async def close(self) -> None:
        pass


class RealFleet(ScriptedFleet):
    """The fleet of a group, which may drain."""

    def __init__(self, world: World, targets: list[str]) -> None:
        super().__init__(shifting)
        self.facts = world.machines[targets[0]].facts
        self.states: asyncio.Queue[bool] = asyncio.Queue()
        self._world = world
        world.fleets[self.facts.group] = self
        world.targets[self.facts.group] = targets

    async def describe(self) -> Facts:
        if self._world.num_lost:
            self._world.num_lost -= 1
            raise FleetError("it was lost while it was asked")
        if self._world.num_changed:
            self._world.num_changed -= 1
            raise OtherFacts("it has 2 shards, not 1")
        return self.facts

    async def draining(self) -> AsyncGenerator[bool, None]:
        yield False
        while True:
            yield await self.states.get()


@asynccontextmanager
async def router(world: World, *listed: str) -> AsyncIterator[Groups]:
    world.list(*listed)
    metrics = Metrics(LIMITS)
    roster = world.roster()
    watching = asyncio.create_task(roster.watch())

    async def background() -> None:
        await watching

    groups = Groups(LIMITS, metrics, background=background)
    try:
        async with asyncio.timeout(20):
            await roster.first()
            roster.begin(groups, lambda fleet, facts: Engine(
                fleet, facts, LIMITS, metrics, 1, 60.0, name=facts.group, is_one_of_many=True))
            running = asyncio.create_task(groups.run())
            yield groups
    finally:
        for task in (watching, running):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def until_there_are(groups: Groups, *names: str) -> None:
    while sorted(each.name for each in groups.members if each.engine.has_group) != sorted(names):
        await asyncio.sleep(0)
