"""Worlds whose routers have a fault each, which the simulation has to find."""

import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from penstock.contract.facts import Facts
from penstock.contract.step_result import StepResult
from penstock.router.engine import engine
from penstock.router.engine.receiver import Receiver
from penstock.router.engine.request import Request
from penstock.router.engine.transfer import Transfer
from penstock.router.fleet.fleet import GrpcFleet
from penstock.router.generation.identity import Identity
from penstock.router.groups import groups, moving
from penstock.router.groups.member import Member
from penstock.router.groups.moving import chosen
from penstock.router.scheduling.death_record import DeathRecord
from penstock.router.scheduling.scheduler import Scheduler
from tests.router.groups.simulation import network
from tests.router.groups.simulation.network import Client as ShardClient
from tests.router.groups.simulation.network import Link, Network
from tests.router.groups.simulation.router import SimulatedRouter
from tests.router.groups.simulation.watched import WatchedEngine, WatchedGroups
from tests.router.groups.simulation.world import World


def world_of(
    *, engine_class: type[WatchedEngine] = WatchedEngine, groups_class: type[WatchedGroups] = WatchedGroups,
    fleet_class: type[GrpcFleet] = GrpcFleet, **more: Any,
) -> type[World]:
    """Makes a kind of world whose routers are made of other parts."""
    parts = {"engine_class": engine_class, "groups_class": groups_class, "fleet_class": fleet_class}
    return type("FaultyWorld", (World,), {"router_class": type("FaultyRouter", (SimulatedRouter,), parts), **more})


class _LosesToken(WatchedEngine):
    def release(self, sequence_id: int) -> Transfer:
        transfer = super().release(sequence_id)
        return replace(transfer, output=transfer.output[:-1])


class _RunsOn(WatchedEngine):
    def release(self, sequence_id: int) -> Transfer:
        state, sequence = self._requests[sequence_id], self._scheduler._sequences[sequence_id]
        output = sequence.tokens[sequence.prompt_length:][:state.receiver.num_tokens]
        transfer = Transfer(state.receiver, output, sequence.age, replace(sequence.record), 0.0)
        self.judge.released(self, transfer)
        return transfer


class _ForgetsRecord(WatchedEngine):
    def release(self, sequence_id: int) -> Transfer:
        return replace(super().release(sequence_id), record=DeathRecord())


class _TakesSchedulersOutput(WatchedEngine):
    def release(self, sequence_id: int) -> Transfer:
        sequence = self._scheduler._sequences[sequence_id]
        return replace(super().release(sequence_id), output=sequence.tokens[sequence.prompt_length:])


class _Ageless(WatchedEngine):
    def take(self, transfer: Transfer) -> None:
        super().take(transfer if transfer.left_at is None else replace(transfer, age=10**6 + self._next_id))


class _SpreadsKillers(WatchedEngine):
    def may_leave(self) -> list[Any]:
        return [(id, self._requests[id].receiver.request) for id in self._scheduler.releasable(bound_too=True)
                if id in self._requests]


class _ChoosesAll(WatchedGroups):
    def _choose(self, request: Request, is_under_way: bool) -> Member:
        members = [each for each in self._members if each.engine.is_healthy]
        return chosen(members, request) if members else super()._choose(request, is_under_way)


class _SubmitsTwice(WatchedGroups):
    def submit(self, receiver: Receiver, output_so_far: Sequence[int] = ()) -> None:
        super().submit(receiver, output_so_far)
        if len(self._members) > 1:
            self._members[0].engine.take(Transfer(receiver, output_so_far, age=next(self._ages)))


class _KeepsPermits(WatchedGroups):
    @asynccontextmanager
    async def permit(self, number: int = 1) -> AsyncIterator[None]:
        self.take_permits(number)
        yield
        self.return_permits(number)


class _BeginsAtOne(GrpcFleet):
    def __init__(self, targets: Sequence[str], tls: None = None) -> None:
        super().__init__(targets, tls)
        self._epoch = 0


def _another_seed(self: Identity, prompt: int) -> int:
    return self.name.seed + self.is_resumed


class _OneInbox(Network):
    """Streams to one shard have their results in common, whichever of them these are of."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.inboxes: dict[str, deque[StepResult]] = defaultdict(deque)

    def connect(self, target: str, tls: None = None) -> ShardClient:
        client = ShardClient(self, target)
        client._inbox = self.inboxes[target]
        return client


class _LateLink(Link):
    def _take(self, result: StepResult) -> None:
        self.inbox.append(result)
        self._wake()


class _UnsettledScheduler(Scheduler):
    """Sequences are moved while nobody takes their blocks back."""

    def release(self, sequence_id: int) -> Any:
        sequence = self._sequences[sequence_id]
        is_in_flight = sequence.in_flight
        released = super().release(sequence_id)
        if is_in_flight:
            self._returning.remove(sequence)
            sequence.in_flight = 10**6
        return released


def _move_at_once_or_never(origin: Member, others: Sequence[Member], metrics: Any) -> None:
    lost_at = origin.engine._lost_at
    if lost_at is None or time.monotonic() == lost_at:
        moving.move_requests(origin, others, metrics)


_complaint = Facts.complaint


def _complaint_of_no_weights(own: Facts, other: Facts, may_change: Collection[str]) -> str:
    return _complaint(replace(own, weights_digest=other.weights_digest), other, may_change)


FAULTS = {
    "a moved request loses its last token": world_of(engine_class=_LosesToken),
    "a moved request is still run where it was": world_of(engine_class=_RunsOn),
    "a moved request is suspected of nothing any more": world_of(engine_class=_ForgetsRecord, poisoned=1.0),
    "a moved request goes on behind tokens that its client has not": world_of(
        engine_class=_TakesSchedulersOutput, constrained=1.0, faults=("drain",)),
    "a moved request is the youngest": world_of(engine_class=_Ageless),
    "the blocks of a moved request are never free": world_of(patches=((engine, "Scheduler", _UnsettledScheduler),)),
    "what has killed a group twice may kill others": world_of(engine_class=_SpreadsKillers, poisoned=1.0),
    "nobody is rescued when a group opens": world_of(patches=((groups, "move_requests", _move_at_once_or_never),)),
    "groups that are left get requests": world_of(groups_class=_ChoosesAll),
    "a request is submitted to two groups": world_of(groups_class=_SubmitsTwice),
    "permits are not returned at an error": world_of(groups_class=_KeepsPermits),
    "every router's streams begin at the same number": world_of(fleet_class=_BeginsAtOne),
    "a replaced model goes on with answers": world_of(
        mixed=1.0, patches=((Facts, "complaint", _complaint_of_no_weights),)),
    "a router that goes on draws another seed": world_of(patches=((Identity, "seed_of", _another_seed),)),
    "late results of another stream are taken": world_of(
        network_class=_OneInbox, patches=((network, "Link", _LateLink),)),
}
