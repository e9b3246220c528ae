"""The fleet makes one of a group's shards: it is the seam between the engine and everything that computes."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Protocol

from penstock.contract import wire
from penstock.contract.facts import Facts
from penstock.contract.plan import Plan
from penstock.contract.shard_facts import ShardFacts
from penstock.contract.step_result import StepResult
from penstock.contract.stream_limits import StreamLimits
from penstock.router.fleet.client import ShardClient
from penstock.router.fleet.errors import AdapterRefusedError, FleetError, OtherFacts
from penstock.system.wire_tls import WireTls

_MINIMUM = ("num_blocks", "first_blocks", "step_tokens", "num_states")


class Fleet(Protocol):
    """The methods of a group that the engine needs. Results come in the order of the plans. Every method may raise
    FleetError."""

    async def open(self, limits: StreamLimits) -> Facts:
        """Waits for the group and starts with empty slots: called before the first plan and after each FleetError."""

    async def submit(self, plan: Plan) -> None:
        """Sends a plan to the shards without waiting for it to run."""

    async def submit_masks(self, step_id: int, masks: Mapping[int, bytes]) -> None:
        """Sends the masks of a submitted plan's `masked` slots, as `Matcher.mask` makes them.

        Called once for each plan with masked slots, in the order of the plans: the plan's result waits for it. The
        sequence of a slot that is left out has ended.
        """

    async def next_result(self) -> StepResult:
        """Waits for the result of the oldest plan that has none yet."""

    async def load_adapter(self, number: int, path: str, digest: str) -> int:
        """Has all shards load an adapter, beside the steps that run, and returns the bytes that it takes on the one
        where it takes most. Raises AdapterRefusedError if one of them can't use it. May be cancelled."""

    async def unload_adapter(self, number: int) -> None:
        """Has all shards forget an adapter that no plan names any more. May be cancelled."""

    async def end(self) -> None:
        """Waits until the group is lost while no plan is in flight, and raises FleetError. May be cancelled."""

    async def close(self) -> None:
        """Closes the connections; the shards keep their weights."""


class GrpcFleet:
    """Reaches the shards of one group over gRPC, each by a client of its own; `targets` are in rank order, `tls` is for
    those that are not Unix sockets."""

    def __init__(self, targets: Sequence[str], tls: WireTls | None = None) -> None:
        self._targets = targets
        self._tls = tls
        self._clients = self._connect()
        self._answering = 0
        self._epoch = time.time_ns()
        """Numbers the streams of this group; no router of the group, before or after, starts at the same number."""
        self._is_open = False

    async def describe(self) -> Facts:
        """Waits until every shard has loaded its model, checks that they are one group, and returns its facts. Raises
        OtherFacts if the group has another number of shards, some of which would be waited for in vain."""
        first = await self._clients[0].describe()
        if first.facts.world_size != len(self._clients):
            raise OtherFacts(f"it has {first.facts.world_size} shards, not {len(self._clients)}")
        shards = [first, *[await client.describe() for client in self._clients[1:]]]
        facts = agree(shards)
        self._answering = next(index for index, shard in enumerate(shards) if shard.answers)
        return facts

    async def draining(self) -> AsyncGenerator[bool, None]:
        """Waits for the shard of rank 0, and yields whether the group drains: at once, and then whenever that changes.

        Raises FleetError once that shard is lost. It has a connection of its own, which `open` does not close.
        """
        client = ShardClient(self._targets[0], self._tls)
        try:
            async with aclosing(client.follow()) as states:
                async for is_draining in states:
                    yield is_draining
        finally:
            await client.close()

    async def open(self, limits: StreamLimits) -> Facts:
        if self._is_open:
            # What is left of the old connections may belong to shards that are about to end.
            await self.close()
            self._clients = self._connect()
        self._is_open = True
        self._epoch += 1
        facts = await self.describe()
        for client in self._clients:
            await client.open(replace(limits, epoch=self._epoch))
        return facts

    async def submit(self, plan: Plan) -> None:
        """Encodes the plan once and writes the same bytes to every shard."""
        order = wire.encode_plan(plan).SerializeToString()
        for client in self._clients:
            await client.write(order)

    async def submit_masks(self, step_id: int, masks: Mapping[int, bytes]) -> None:
        """Sends the masks to the shard that samples, and to no other."""
        await self._clients[self._answering].write(wire.encode_masks(step_id, masks).SerializeToString())

    async def next_result(self) -> StepResult:
        """Returns the answering shard's result once every shard has run the step, with the energy of all of them."""
        results = [await client.read() for client in self._clients]
        answer = results[self._answering]
        for client, result in zip(self._clients, results, strict=True):
            if result.step_id != answer.step_id:
                raise FleetError(f"shard {client.target} ran step {result.step_id}, the group is at {answer.step_id}")
        told = [result.energy_uj for result in results if result.energy_uj is not None]
        energy = sum(told) if len(told) == len(results) else None
        return answer if energy == answer.energy_uj else replace(answer, energy_uj=energy)

    async def load_adapter(self, number: int, path: str, digest: str) -> int:
        loads = [client.load_adapter(number, path, digest) for client in self._clients]
        found = await asyncio.gather(*loads, return_exceptions=True)
        errors = [each for each in found if isinstance(each, BaseException)]
        for error in sorted(errors, key=lambda each: isinstance(each, AdapterRefusedError)):
            if isinstance(error, AdapterRefusedError):  # and nothing worse has happened: others may have it
                await self.unload_adapter(number)
            raise error
        return max(each for each in found if isinstance(each, int))

    async def unload_adapter(self, number: int) -> None:
        await asyncio.gather(*(client.unload_adapter(number) for client in self._clients))

    async def end(self) -> None:
        await asyncio.gather(*(client.end() for client in self._clients))

    def _connect(self) -> list[ShardClient]:
        return [ShardClient(target, self._tls) for target in self._targets]

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


def agree(shards: Sequence[ShardFacts]) -> Facts:
    """Returns the facts of the group. Raises FleetError if the shards differ in facts that must be equal, or are not
    one whole group."""
    ranks = sorted(shard.rank for shard in shards)
    world_size = shards[0].facts.world_size
    if ranks != list(range(world_size)):
        raise FleetError(f"the shards have the ranks {ranks}, a group of {world_size} has 0 to {world_size - 1}")
    if (answering := sum(shard.answers for shard in shards)) != 1:
        raise FleetError(f"{answering} shards answer, exactly one must")
    first = shards[0].facts
    for shard in shards[1:]:
        if differences := first.differences(shard.facts, besides=[*_MINIMUM, "memory_id"]):
            raise FleetError(f"shards differ in {', '.join(differences)}")
    return replace(first, memory_id="+".join(shard.facts.memory_id for shard in shards),
                   **{name: min(getattr(shard.facts, name) for shard in shards) for name in _MINIMUM})
