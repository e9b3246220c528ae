"""All groups of a router as one engine, which chooses the group of each request, and moves requests between them."""

import asyncio
import itertools
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from penstock.contract.facts import Facts
from penstock.router.adapters.registry import Adapter, Registry
from penstock.router.engine.engine import Engine
from penstock.router.engine.errors import DeadlineTooNear, DeadlineTooShort
from penstock.router.engine.receiver import Receiver
from penstock.router.engine.request import Request
from penstock.router.engine.transfer import Transfer
from penstock.router.errors import GenerationError, Overloaded, RouterError, Unhealthy
from penstock.router.fleet.errors import OtherFacts
from penstock.router.groups.member import Member
from penstock.router.groups.moving import chosen, most_tokens, move_requests
from penstock.router.limits import Limits
from penstock.router.metrics.metrics import Metrics

log = logging.getLogger(__name__)

STEP_SECONDS = 3.0
"""How long a step may take before its requests go on in another group. Steps are sized to take a twelfth of it."""
LOOK_SECONDS = 0.25
"""How often that is looked at."""
LATE_SECONDS = 1.0
"""How late it may be for that. A router that was held up itself, as by a machine that was suspended, has results to
read first, and knows nothing of its groups."""
REPLACED = "Server error: the model was replaced by another one while it answered"


class Groups:
    """Holds the engines of all groups, at least one before it is used. All methods run on one event loop.

    `limits` are those before a group has joined, and `adapters` are known to all engines. `background` runs beside the
    engines: it finds groups that come and go.
    """

    def __init__(
        self, limits: Limits, metrics: Metrics, adapters: Registry | None = None,
        background: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self._metrics = metrics
        self._adapters = Registry() if adapters is None else adapters
        self._adapters.followers.append(self._note_adapters)
        self._background = background
        self._members: list[Member] = []
        self._running: asyncio.TaskGroup | None = None
        self._ages, self._background_ages = itertools.count(), itertools.count()
        """The arrival numbers. Those of the background are its own, for it ages no others."""
        self._permits = limits.max_concurrent_requests
        self.num_refused = 0
        """How many groups were found that do not fit the others."""
        self.facts: Facts
        self._kinds: dict[tuple[str, ...], Facts] = {}
        self.limits = limits
        self.changed = asyncio.Event()

    @property
    def members(self) -> Sequence[Member]:
        return self._members

    @property
    def kinds(self) -> Sequence[Facts]:
        if len(self._kinds) < 2:
            return [*self._kinds.values()]
        # Of several, the one for the next request is that of a group which is open, has room for whatever the limits
        # allow, and has the least to do.
        most = self.limits.max_total_tokens
        members = sorted(self._members, key=lambda each: (not each.is_open, not each.fits(most), each.engine.load()))
        return [*{each.engine.facts.bits: each.engine.facts for each in members}.values()]

    @property
    def num_slots(self) -> int:
        return sum(each.engine.limits.max_slots for each in self._members)

    @property
    def is_healthy(self) -> bool:
        return any(each.engine.is_healthy for each in self._members)

    @property
    def has_group(self) -> bool:
        return any(each.engine.has_group for each in self._members)

    def add(self, engine: Engine, is_lasting: bool = True) -> Member:
        """Lets requests come to a group, whose engine is driven while `run` is."""
        member = Member(engine, is_lasting, self.note)
        self._members.append(member)
        engine.notify = self.note
        if self._running is not None:
            member.task = self._running.create_task(self._drive(member))
        self.note()
        return member

    def note(self) -> None:
        """Moves the requests of groups that are lost or to be left, as far as others can take them, and lets go of
        groups that are gone and have none left. Called whenever a group may have changed."""
        for member in [*self._members]:
            if member.should_move and len(self._members) > 1:
                move_requests(member, [each for each in self._members if each is not member], self._metrics.groups)
            if member.is_gone and not member.engine.num_requests and len(self._members) > 1:
                self._let_go(member)
        largest = max((each.engine for each in self._members), key=lambda engine: engine.facts.capacity, default=None)
        if largest is not None:
            self.facts, self.limits = largest.facts, largest.limits
            self._kinds = {each.engine.facts.bits: each.engine.facts for each in self._members}
        self._metrics.groups.states({**Counter(each.state for each in self._members), "refused": self.num_refused})
        self.changed.set()

    def _let_go(self, member: Member) -> None:
        self._members.remove(member)
        member.left.set()
        if member.task is None:
            self._forget(member.name)
        else:  # as long as the engine is driven it counts; it may be what has called this
            member.task.add_done_callback(lambda _: self._forget(member.name))
            member.task.cancel()

    def _forget(self, name: str) -> None:
        if all(each.name != name for each in self._members):  # else one of its name has taken its place
            self._metrics.forget(name)

    async def run(self) -> None:
        """Drives all engines until cancelled. Raises any error but the loss of a group."""
        try:
            async with asyncio.TaskGroup() as self._running:
                for member in self._members:
                    member.task = self._running.create_task(self._drive(member))
                if self._background is not None:
                    self._running.create_task(self._background())
                while True:
                    began_at = time.monotonic()
                    await asyncio.sleep(LOOK_SECONDS)
                    if time.monotonic() - began_at < LOOK_SECONDS + LATE_SECONDS:
                        self._look()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            self._running = None

    def _look(self) -> None:
        """Looks for steps that take too long, for requests that may leave by now, as suspects may that were acquitted,
        and for groups whose last request has ended."""
        if len(self._members) > 1:
            for member in [*self._members]:
                member.engine.look(STEP_SECONDS)
            if any(each.should_move for each in self._members):
                self.note()

    async def _drive(self, member: Member) -> None:
        try:
            await member.engine.run()
        except OtherFacts as error:
            if member.is_lasting:
                member.engine.fail_all(GenerationError(f"Server error: {error}"))
                raise
            log.error("group %s is another one now: %s", member.name, error)
            member.is_gone, member.task = True, None
            self.note()  # which moves its requests, if another group has the same weights
            member.engine.fail_all(GenerationError(REPLACED))
            if member in self._members:
                self._let_go(member)

    @asynccontextmanager
    async def permit(self, number: int = 1) -> AsyncIterator[None]:
        self.take_permits(number)
        try:
            yield
        finally:
            self.return_permits(number)

    def take_permits(self, number: int, *, may_exceed: bool = False) -> None:
        """Takes permits. Raises Overloaded when fewer are left, unless they may be exceeded."""
        if number and number > self._permits and not may_exceed:
            raise Overloaded
        self._permits -= number

    def return_permits(self, number: int) -> None:
        """Gives permits back."""
        self._permits += number

    def submit(self, receiver: Receiver, output_so_far: Sequence[int] = ()) -> None:
        ages = self._background_ages if receiver.request.is_background else self._ages
        age = next(ages)
        if receiver.request.deadline is None or receiver.request.deadline.is_promised:
            self._submit(receiver, output_so_far, age)
            return
        try:
            self._submit_in_time(receiver, output_so_far, age)
        except (DeadlineTooNear, DeadlineTooShort):
            self._metrics.deadlines.judged(is_promised=False)
            raise
        self._metrics.deadlines.judged(is_promised=True)

    def _submit_in_time(self, receiver: Receiver, output_so_far: Sequence[int], age: int) -> None:
        """Submits a request with a deadline to the group that is chosen for it, or to another one that can meet it.
        Raises the first group's error if none can."""
        refused: list[Member] = []
        first: RouterError | None = None
        while True:
            try:
                self._submit(receiver, output_so_far, age, refused)
                return
            except (DeadlineTooNear, DeadlineTooShort) as error:
                first = first or error
            except RouterError as error:
                raise first or error from None
            if len(refused) == len(self._members):
                raise first

    def _submit(
        self, receiver: Receiver, output_so_far: Sequence[int], age: int, tried: list[Member] | None = None
    ) -> None:
        """Submits a request to a group that is none of those that were `tried`, of which it is one then."""
        member = self._choose(receiver.request, is_under_way=bool(output_so_far), without=tried or ())
        if tried is not None:
            tried.append(member)
        if not member.has_bits(receiver.request.bits):
            log.warning("a request goes to group %s, though groups of other numerics or weights were to answer it: its "
                        "bits may be other ones than its answer's name says", member.name)
            self._metrics.groups.other_numerics()
        member.engine.take(Transfer(receiver, output_so_far, age=age))

    def _choose(self, request: Request, is_under_way: bool, without: Sequence[Member] = ()) -> Member:
        """Returns the group for a request, none of those `without` it: one that runs steps and is not to be left, if
        there is one. Raises Unhealthy if there is none that would wait for its shards, and GenerationError if none has
        the bits that the request needs, or the weights of an answer that is under way."""
        if request.needs_bits:
            able = [each for each in self._members if each.has_bits(request.bits)]
        elif is_under_way:
            able = [each for each in self._members if each.has_weights(request.bits)]
        else:
            able = self._members
        members = [each for each in able if each.engine.is_healthy and each not in without]
        if not members:
            raise GenerationError(REPLACED) if self.is_healthy and not able else Unhealthy
        if not is_under_way:
            members = [each for each in members if each.has_weights(request.bits)] or members
        tests: list[Callable[[Member], bool]] = [
            lambda each: each.fits(most_tokens(request)), lambda each: each.engine.has_group,
            lambda each: each.is_open, lambda each: each.has_bits(request.bits)]
        for test in tests if len(members) > 1 else ():
            members = [*filter(test, members)] or members
        return chosen(members, request, self._metrics.groups)

    def _note_adapters(self, removed: Adapter | None) -> None:
        self._metrics.adapters.know(len(self._adapters))
        for member in self._members:
            member.engine.drop_adapter(removed)

    async def stalled_seconds(self) -> float:
        """Returns for how long no step of any group has come back, though requests run."""
        stalled = [each.engine.stalled_seconds() for each in self._members if each.engine.num_requests]
        return min(stalled, default=0.0)

    def keep_waiting(self, seconds: float | None = None) -> None:
        for member in self._members:
            member.engine.keep_waiting(seconds)

    def give_up(self) -> None:
        for member in [*self._members]:  # one that is gone is let go as its last request fails
            member.engine.give_up()
