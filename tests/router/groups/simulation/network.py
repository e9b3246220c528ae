"""Connections of a router to shards: each message is late by a moment, in its order; some connections are cut."""

import asyncio
import random
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from penstock.contract.shard_facts import ShardFacts
from penstock.contract.step_result import StepResult
from penstock.contract.stream_limits import StreamLimits
from penstock.router.fleet.errors import AdapterRefusedError, FleetError
from penstock.system import addresses
from tests.router.groups.simulation.group import Group


@dataclass(frozen=True, slots=True)
class Opening:
    """The order that begins a stream."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Masks:
    """The masks of a step."""

    step_id: int
    masks: Any


class Order:
    """Stands for an encoded order, and is never encoded: what is under test is not the encoding."""

    def __init__(self, content: Any) -> None:
        self.SerializeToString = lambda: content


class PlainWire:
    """Takes the place of `wire` in the router's fleet."""

    encode_plan = Order

    @staticmethod
    def encode_masks(step_id: int, masks: Any) -> Order:
        return Order(Masks(step_id, masks))


class Network:
    """Knows which shard listens where, and how long messages take."""

    def __init__(self, seed: int, groups: list[Group], slowness: float, is_told_outside: bool) -> None:
        self.random = random.Random(seed)
        self.places = {addresses.shifted(group.address, place): (group, place)
                       for group in groups for place in range(group.world_size)}
        self.slowness = slowness
        self.is_told_outside = is_told_outside
        """Whether the router can tell a cut wire from a death."""
        self.is_router_dead = False
        """Whether the router's process has ended, so that nothing is sent any more."""
        self.epochs: list[int] = []

    def delay(self) -> float:
        most = 0.05 if self.random.random() < 0.05 else 0.002
        return self.random.random() * most * self.slowness

    def connect(self, target: str, tls: None = None) -> "Client":
        return Client(self, target)


class Link:
    """One stream of orders and results between a client and a shard."""

    def __init__(self, network: Network, group: Group, place: int, inbox: deque[StepResult]) -> None:
        self.group = group
        self.place = place
        self.error: FleetError | None = None
        """Why the client can't use it any more."""
        self.is_closed = False
        """Whether the client has closed it, or has ended itself: nothing reaches it any more."""
        self.is_ended = False
        """Whether the shard knows that nobody reads its results."""
        self.inbox = inbox
        self._network = network
        self._loop = asyncio.get_running_loop()
        self._sent_until = self._answered_until = 0.0
        self._waiter: asyncio.Future[None] | None = None

    def send(self, order: Any) -> None:
        """Has the shard get an order, later."""
        if self.error is not None:
            raise self.error
        if not self._network.is_router_dead:
            self._sent_until = max(self._sent_until + 1e-6, self._loop.now + self._network.delay())
            self._loop.call_at(self._sent_until, self.group.receive, self, self.place, order, self.group.life)

    def answer(self, result: StepResult) -> None:
        """Has the client get a result, later."""
        self._answered_until = max(self._answered_until + 1e-6, self._loop.now + self._network.delay())
        self._loop.call_at(self._answered_until, self._take, result)

    def cut(self, message: str, is_outside: bool = False) -> None:
        """Has the client know that the stream is lost, behind the results that are under way."""
        error = FleetError(message, is_outside and self._network.is_told_outside)
        self._answered_until = max(self._answered_until + 1e-6, self._loop.now + self._network.delay())
        self._loop.call_at(self._answered_until, self._break, error)

    def _take(self, result: StepResult) -> None:
        if self.error is None and not self.is_closed:
            self.inbox.append(result)
            self._wake()

    def _break(self, error: FleetError) -> None:
        if self.error is None:
            self.error = error
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def news(self) -> None:
        """Waits for a result, or for the end."""
        self._waiter = self._loop.create_future()
        await self._waiter

    def close(self) -> None:
        """Ends it from the client's side; the shard hears of that later, if the client still lives."""
        self.is_closed = True
        if not self._network.is_router_dead:
            self._loop.call_later(self._network.delay(), self.group.hang_up, self)


class Client:
    """Takes the place of `ShardClient`, with its methods."""

    def __init__(self, network: Network, target: str) -> None:
        self.target = target
        self._network = network
        self._group, self._place = network.places[target]
        self._link: Link | None = None
        self._inbox: deque[StepResult] = deque()
        self._epoch = 0

    async def describe(self) -> ShardFacts:
        """Waits for the shard, however long that takes."""
        await self._ask()
        return ShardFacts(self._place, self._place == 0, self._group.facts, self._group.world_size)

    async def follow(self) -> AsyncGenerator[bool, None]:
        group = self._group
        await self._ask()
        life, told = group.life, None
        while group.life == life and group.is_reachable:
            if group.is_draining != told:
                yield (told := group.is_draining)
            else:
                await group.change()
        raise FleetError(f"shard {self.target} ended")

    async def load_adapter(self, number: int, path: str, digest: str) -> int:
        await self._ask(0.02)
        if digest == "refused":
            raise AdapterRefusedError("it is of another model")
        self._group.load_adapter(self._epoch, number, digest)
        return 1000

    async def unload_adapter(self, number: int) -> None:
        await self._ask()
        self._group.unload_adapter(self._epoch, number)

    async def open(self, limits: StreamLimits) -> None:
        if not self._group.is_reachable:
            raise FleetError(f"shard {self.target}: nobody listens")
        self._epoch = limits.epoch
        self._link = Link(self._network, self._group, self._place, self._inbox)
        self._group.links.append(self._link)
        await self.write(Opening(limits.epoch))

    async def write(self, order: Any) -> None:
        assert self._link is not None
        self._link.send(order)

    async def read(self) -> StepResult:
        link = self._link
        assert link is not None
        while not link.inbox:
            if link.error is not None:
                raise link.error
            await link.news()
        return link.inbox.popleft()

    async def end(self) -> None:
        link = self._link
        assert link is not None
        while link.error is None:
            await link.news()
        raise link.error

    async def close(self) -> None:
        if self._link is not None:
            self._link.close()

    async def _ask(self, takes: float = 0.0) -> None:
        """Takes the time of a question and its answer. Raises FleetError if the shard is lost meanwhile."""
        while not self._group.is_reachable:
            await self._group.change()
        life = self._group.life
        await asyncio.sleep(2 * self._network.delay() + takes)
        if self._group.life != life or not self._group.is_reachable:
            raise FleetError(f"shard {self.target}: the connection is lost")
