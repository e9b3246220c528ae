"""Worlds whose routers have a fault each, which the simulation has to find."""

from collections import defaultdict, deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from penstock.router.engine import engine
from penstock.router.engine.receiver import Receiver
from penstock.router.engine.transfer import Transfer
from penstock.router.fleet.fleet import GrpcFleet
from penstock.router.groups.member import Member
from penstock.router.groups.moving import chosen
from penstock.router.scheduling.death_record import DeathRecord
from penstock.router.scheduling.plan import StepResult
from penstock.router.scheduling.scheduler import Scheduler
from tests.router.groups.simulation.client import Client
from tests.router.groups.simulation.network import Client as ShardClient
from tests.router.groups.simulation.network import Link, Network
from tests.router.groups.simulation.router import SimulatedRouter
from tests.router.groups.simulation.watched import WatchedEngine, WatchedGroups
from tests.router.groups.simulation.world import World


def world_of(
    name: str, *, engine_class: type[WatchedEngine] = WatchedEngine, groups_class: type[WatchedGroups] = WatchedGroups,
    fleet_class: type[GrpcFleet] = GrpcFleet, **more: Any,
) -> type[World]:
    """Makes a kind of world whose routers are made of other parts."""
    parts = {"engine_class": engine_class, "groups_class": groups_class, "fleet_class": fleet_class}
    return type(name, (World,), {"router_class": type(name, (SimulatedRouter,), parts), **more})


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


class _SaysNothingWhenOpen(WatchedEngine):
    async def _open(self) -> None:
        notify, self.notify = self.notify, lambda: None
        try:
            await super()._open()
        finally:
            self.notify = notify


class _SpreadsKillers(WatchedEngine):
    def may_leave(self) -> list[Any]:
        return [(id, self._requests[id].receiver.request) for id in self._scheduler.releasable(bound_too=True)
                if id in self._requests]


class _ChoosesAll(WatchedGroups):
    def _choose(self, receiver: Receiver) -> Member:
        members = [each for each in self._members if each.engine.is_healthy]
        return chosen(members, receiver.request) if members else super()._choose(receiver)


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


class _DrawsAnew(SimulatedRouter):
    def seed_of(self, client: Client) -> int:
        return self._world.draw_seed() if client.ask.seed is None else client.ask.seed


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


def _make_unsettled() -> tuple[Any, str, Any]:
    return engine, "Scheduler", _UnsettledScheduler


LosesToken = world_of("LosesToken", engine_class=_LosesToken)
RunsOn = world_of("RunsOn", engine_class=_RunsOn)
ForgetsRecord = world_of("ForgetsRecord", engine_class=_ForgetsRecord, poisoned=1.0)
TakesSchedulersOutput = world_of("TakesSchedulersOutput", engine_class=_TakesSchedulersOutput, constrained=1.0)
Ageless = world_of("Ageless", engine_class=_Ageless)
SaysNothingWhenOpen = world_of("SaysNothingWhenOpen", engine_class=_SaysNothingWhenOpen)
SpreadsKillers = world_of("SpreadsKillers", engine_class=_SpreadsKillers, poisoned=1.0)
ChoosesAll = world_of("ChoosesAll", groups_class=_ChoosesAll)
SubmitsTwice = world_of("SubmitsTwice", groups_class=_SubmitsTwice)
KeepsPermits = world_of("KeepsPermits", groups_class=_KeepsPermits)
BeginsAtOne = world_of("BeginsAtOne", fleet_class=_BeginsAtOne)
GoesOnReplaced = world_of("GoesOnReplaced", mixed=1.0, patches=(
    (engine, "MAY_CHANGE", (*engine.MAY_CHANGE, "weights_digest")),))
LeaksMoved = world_of("LeaksMoved", patches=(_make_unsettled(),))
DrawsAnew = type("DrawsAnew", (World,), {"router_class": _DrawsAnew})


def _late_results() -> type[World]:
    from tests.router.groups.simulation import network

    return world_of("TakesLateResults", network_class=_OneInbox, patches=((network, "Link", _LateLink),))


TakesLateResults = _late_results()

FAULTY = {
    LosesToken: "goes on behind", RunsOn: "", ForgetsRecord: "", TakesSchedulersOutput: "", Ageless: "",
    SaysNothingWhenOpen: "", SpreadsKillers: "", ChoosesAll: "", SubmitsTwice: "", KeepsPermits: "", BeginsAtOne: "",
    GoesOnReplaced: "", LeaksMoved: "", DrawsAnew: "", TakesLateResults: "",
}
