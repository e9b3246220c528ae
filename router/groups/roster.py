"""Finds the groups whose shards are at the addresses of a directory, and has them join the others."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import TypeVar

from penstock.contract.facts import Facts
from penstock.contract.shard_facts import ShardFacts
from penstock.router.engine.engine import Engine
from penstock.router.fleet.client import ShardClient
from penstock.router.fleet.directory import Directory
from penstock.router.fleet.errors import FleetError, OtherFacts
from penstock.router.fleet.fleet import GrpcFleet
from penstock.router.groups.groups import Groups
from penstock.router.groups.member import Member
from penstock.router.limits import LimitError
from penstock.system import addresses as addressing

log = logging.getLogger(__name__)

_Told = TypeVar("_Told")
OTHERS_SECONDS = 0.5
"""How much longer a router waits for other groups before it begins: clients that come back to it may have answers of a
kind that the first does not give."""
RETRY_SECONDS = 0.5
"""The pause before shards are asked again that were lost while they were asked."""
REFUSED_SECONDS = 10.0
"""The time until those that are of no use are asked again: they may have been started anew, with other settings."""


@dataclass(frozen=True, slots=True)
class Found:
    """A group all of whose shards have answered, with the addresses of its machines in rank order."""

    name: str
    addresses: tuple[str, ...]
    fleet: GrpcFleet
    facts: Facts


class Roster:
    """Asks who listens at each address of `directory` for the group that it belongs to, at all addresses at once, so
    that a dead one holds nobody up. `connect` makes a client for a shard's gRPC target, and `make_fleet` a fleet for
    those of a group."""

    def __init__(
        self, directory: Directory, connect: Callable[[str], ShardClient], make_fleet: Callable[[list[str]], GrpcFleet],
    ) -> None:
        self._directory = directory
        self._connect = connect
        self._make_fleet = make_fleet
        self._listed: frozenset[str] = frozenset()
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._machines: dict[str, ShardFacts] = {}
        self._known: dict[tuple[str, ...], str] = {}
        """The names of groups that have joined, are about to, or were refused, by their addresses: one may have the
        name of another that is not listed any more, as a pod has that takes the place of another."""
        self._describing: dict[tuple[str, ...], asyncio.Task[None]] = {}
        self._members: dict[tuple[str, ...], Member] = {}
        self._waiting: list[Found] = []
        self._has_found, self._has_all = asyncio.Event(), asyncio.Event()
        self._groups: Groups | None = None
        self._make_engine: Callable[[GrpcFleet, Facts], Engine]
        self._refusals: dict[tuple[str, ...], str] = {}
        """Why groups are refused, by their addresses."""
        self._twins: set[str] = set()
        """The addresses that were warned of."""
        self._tasks: asyncio.TaskGroup

    async def watch(self) -> None:
        """Follows the directory until cancelled."""
        async with asyncio.TaskGroup() as self._tasks, aclosing(self._directory.watch()) as listings:
            async for listed in listings:
                self._take(listed)
            await asyncio.Event().wait()  # a list never changes, but groups at its addresses come and go

    async def first(self, fits: Callable[[Facts], bool] = lambda facts: True) -> Facts:
        """Waits for the first group, and a moment for the others; returns the facts of the first that `fits`, or if
        none does of the first. No group joins before `begin`."""
        await self._has_found.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(OTHERS_SECONDS):
                await self._has_all.wait()
        return next((found.facts for found in self._waiting if fits(found.facts)), self._waiting[0].facts)

    def begin(self, groups: Groups, make_engine: Callable[[GrpcFleet, Facts], Engine]) -> None:
        """Makes the groups that were found, and those that will be, join `groups`. A group is refused for which
        `make_engine` raises LimitError."""
        self._groups, self._make_engine = groups, make_engine
        for found in self._waiting:
            self._admit(found)
        self._waiting.clear()

    def _take(self, listed: frozenset[str]) -> None:
        """Asks at addresses that are new, and lets groups go whose addresses are not listed any more."""
        for address in self._listed - listed:
            if (asking := self._asking.pop(address, None)) is not None:
                asking.cancel()
            self._machines.pop(address, None)
            self._twins.discard(address)
        for address in sorted(listed - self._listed):
            self._ask_at(address)
        self._listed = listed
        for addresses in [each for each in self._describing if not listed.issuperset(each)]:
            self._describing.pop(addresses).cancel()
            self._assemble(self._known.pop(addresses))
        for addresses, member in self._members.items():
            is_gone = not listed.issuperset(addresses)
            if is_gone != member.is_gone:
                log.info("group %s is %s", member.name, "not listed any more" if is_gone else "listed again")
                member.is_gone = is_gone
                member.note()
                self._assemble(member.name)
        self._note_refusals(self._refusals)

    def _note_refusals(self, refusals: dict[tuple[str, ...], str]) -> None:
        """Notes which groups are refused now: of these, those that are listed."""
        self._refusals = {each: why for each, why in refusals.items() if self._listed.issuperset(each)}
        if self._groups is not None and self._groups.num_refused != len(self._refusals):
            self._groups.num_refused = len(self._refusals)
            self._groups.note()

    def _ask_at(self, address: str) -> None:
        if (before := self._asking.get(address)) is not None:
            before.cancel()
        self._asking[address] = self._tasks.create_task(self._ask(address))

    async def _ask(self, address: str) -> None:
        """Waits for the first shard at an address, however long that takes, and notes what it tells; asks again as long
        as the address is of no group: another may be started there, or the same with a name of its own."""
        async def describe() -> ShardFacts:
            client = self._connect(address)
            try:
                return await client.describe()
            finally:
                await client.close()

        while True:
            told = await _patiently(describe, f"the shard at {address}")
            if self._machines.get(address) != told:
                self._machines[address] = told
                self._assemble(told.facts.group)
                self._look_for_others()
            await asyncio.sleep(REFUSED_SECONDS)
            if any(address in known for known in self._known):
                return

    def _assemble(self, name: str) -> None:
        """Has a group join once the first shards of all its machines have answered, unless one that is listed has its
        name, or its addresses: another may have been there, which is found out when that is asked for its facts."""
        there = {address: told for address, told in self._machines.items() if told.facts.group == name}
        ranks = {told.rank: address for address, told in there.items()}
        addresses = tuple(address for _, address in sorted(ranks.items()))
        if not there or sum(there[each].shards_here for each in addresses) != there[addresses[0]].facts.world_size:
            return
        for known, each in self._known.items():
            if self._listed.issuperset(known) and (each == name or not {*known}.isdisjoint(addresses)):
                if each == name:
                    self._warn_of_twins(name, known, {
                        address for address, told in there.items() if not told.rank and address not in known})
                else:
                    log.warning("group %s at %s is not used: group %s is at %s", name, ", ".join(addresses), each,
                                ", ".join(known))
                return
        self._known[addresses] = name
        targets = [addressing.shifted(address, place) for address in addresses
                   for place in range(self._machines[address].shards_here)]
        self._describing[addresses] = self._tasks.create_task(self._describe(name, addresses, targets))

    def _warn_of_twins(self, name: str, addresses: tuple[str, ...], twins: set[str]) -> None:
        """Tells, once, of addresses that are of no use since another group has the name of theirs."""
        for twin in sorted(twins - self._twins):
            log.warning("the shard at %s gets no requests while %s is listed, since both are of group %s: unless they "
                        "are the same, give each group a --group-name of its own", twin, addresses[0], name)
        self._twins |= twins

    async def _describe(self, name: str, addresses: tuple[str, ...], targets: list[str]) -> None:
        async def describe() -> Found:
            fleet = self._make_fleet(targets)
            try:
                return Found(name, addresses, fleet, await fleet.describe())
            except BaseException:
                await fleet.close()
                raise

        try:
            found = await _patiently(describe, f"group {name}")
        except OtherFacts as error:
            log.warning("group %s has changed: %s", name, error)
            del self._describing[addresses]
            self._forget(addresses)
            return
        del self._describing[addresses]
        if found.facts.group != name:
            await found.fleet.close()
            self._forget(addresses)
        elif self._groups is None:
            self._waiting.append(found)
            self._has_found.set()
            self._look_for_others()
        else:
            self._admit(found)

    def _look_for_others(self) -> None:
        """Notes whether all groups have been found, at whatever address that is listed."""
        if self._listed <= self._machines.keys() and not self._describing:
            self._has_all.set()

    def _admit(self, found: Found) -> None:
        """Has a group join, unless it does not fit those that are there, or were there last."""
        assert self._groups is not None
        try:
            if self._groups.kinds and (conflicts := self._groups.facts.conflicts(found.facts)):
                raise LimitError(f"it differs from the others, or the last that was there, in {', '.join(conflicts)}")
            engine = self._make_engine(found.fleet, found.facts)
        except LimitError as error:
            self._tasks.create_task(self._refuse(found, str(error)))
            return
        self._note_refusals({each: why for each, why in self._refusals.items() if each != found.addresses})
        member = self._members[found.addresses] = self._groups.add(engine, is_lasting=False)
        member.is_gone = not self._listed.issuperset(found.addresses)  # before `begin` it may have left
        log.info("group %s joins: %d shard%s, %d KV tokens, numerics %s", found.name, found.facts.world_size,
                 "s" * (found.facts.world_size > 1), found.facts.capacity, found.facts.numerics)
        self._tasks.create_task(self._attend(found, member))

    async def _attend(self, found: Found, member: Member) -> None:
        """Follows whether a group drains until it is let go; then asks again who is at its addresses."""
        following = self._tasks.create_task(_follow(found.fleet, member))
        await member.left.wait()
        following.cancel()
        del self._members[found.addresses]
        await found.fleet.close()
        self._forget(found.addresses)

    async def _refuse(self, found: Found, why: str) -> None:
        """Lets a group be that does not fit the others, for a while."""
        if self._refusals.get(found.addresses) != why:
            log.error("group %s is refused: %s", found.name, why)
        self._note_refusals({**self._refusals, found.addresses: why})
        await asyncio.sleep(REFUSED_SECONDS)
        await found.fleet.close()
        self._forget(found.addresses)

    def _forget(self, addresses: tuple[str, ...]) -> None:
        """Asks again who is at the addresses of a group that is none of the others."""
        name = self._known.pop(addresses)
        for address in addresses:
            if self._machines.pop(address, None) is not None and address in self._listed:
                self._ask_at(address)
        self._assemble(name)


async def _follow(fleet: GrpcFleet, member: Member) -> None:
    """Notes whether a group drains, for as long as it is there, and whenever it is back."""
    while True:
        try:
            async with aclosing(fleet.draining()) as states:
                async for is_draining in states:
                    if is_draining != member.is_draining:
                        log.info("group %s %s", member.name, "drains" if is_draining else "takes requests again")
                        member.is_draining = is_draining
                        member.note()
        except FleetError:
            await asyncio.sleep(RETRY_SECONDS)


async def _patiently(ask: Callable[[], Coroutine[None, None, _Told]], name: str) -> _Told:
    """Returns the reply of shards, if need be of a later try: they may be lost while they are asked."""
    told = ""
    while True:
        try:
            return await ask()
        except FleetError as error:
            if str(error) != told:
                told = str(error)
                log.warning("%s does not answer: %s", name, error)
            await asyncio.sleep(RETRY_SECONDS)
