"""Says what must never happen, and sees whether it does."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.router.engine.transfer import Transfer
from penstock.router.errors import GenerationError, KilledGroup, RouterError, Unhealthy
from penstock.router.groups.member import Member
from penstock.router.groups.moving import most_tokens
from penstock.router.scheduling.confirmed import Sampled
from penstock.router.scheduling.suspects import MAX_SOLO_DEATHS
from tests.router.groups.simulation.watched import WatchedEngine, WatchedGroups, WatchedStream

if TYPE_CHECKING:
    from penstock.router.limits import Limits

MAX_PAUSE = 5.0
"""The longest that a stream may pause that went on in another group, where nothing went wrong since."""
SLOW_SECONDS = 0.5
"""What no step of a group takes that is well."""
GRACE = 0.5
"""How long what could leave a group may stay there."""
MAX_POISON_DEATHS = 11
"""How often a request may kill groups before it is given up: once that accuses it, four times until it is alone, three
times alone, and three times more if it was cleared of another death before."""


def should_leave(member: Member) -> bool:
    """Tells whether requests should go on elsewhere."""
    return member.is_draining or member.is_gone or member.engine.is_stuck or not member.engine.has_group


class Judge:
    """Takes down the first thing that went wrong; `failed_at_all` is set then. `tell` notes what happens."""

    def __init__(self, limits: "Limits", max_downtime: float, tell: Callable[[str], None]) -> None:
        self.violation: str | None = None
        self.failed_at_all = asyncio.Event()
        self.counts: Counter[str] = Counter()
        self.tell = tell
        self._limits = limits
        self._max_downtime = max_downtime
        self._loop = asyncio.get_running_loop()
        self.groups: WatchedGroups | None = None
        """Those of the router that lives."""
        self._late: dict[object, float] = {}
        """Since when requests should have left, and groups should not be there any more."""
        self.poison_deaths: Counter[int] = Counter()
        """By seed, how often a request has killed a group of the router that lives."""

    def check(self, is_true: bool, message: Callable[[], str]) -> None:
        if not is_true and self.violation is None:
            self.violation = message()
            self.tell(f"VIOLATION: {self.violation}")
            self.failed_at_all.set()

    def begin(self, groups: WatchedGroups) -> None:
        """Looks at the groups of a new router."""
        self.groups = groups
        self.poison_deaths.clear()

    def killed(self, seed: int) -> None:
        """Notes that a request has killed a group."""
        self.counts["poison deaths"] += 1
        self.poison_deaths[seed] += 1
        self.check(self.poison_deaths[seed] <= MAX_POISON_DEATHS, lambda: "a request kills groups for ever")

    def member_of(self, engine: WatchedEngine) -> Member:
        assert self.groups is not None
        return next(each for each in self.groups.members if each.engine is engine)

    def places(self, stream: WatchedStream, engine: WatchedEngine) -> list[Member]:
        """Returns the groups that could go on with what an engine runs."""
        assert self.groups is not None
        return [each for each in self.groups.members
                if each.engine is not engine and each.is_open
                and each.engine.facts.weights_digest == engine.facts.weights_digest
                and (not stream.request.needs_bits or each.engine.facts.bits == stream.request.bits)
                and each.engine.facts.capacity >= most_tokens(stream.request)]

    def taken(self, engine: WatchedEngine, stream: WatchedStream, transfer: Transfer) -> None:
        is_new, member = transfer.left_at is None, self.member_of(engine)
        self.check(stream.owner is None, lambda: f"{stream.label} is run by two engines")
        self.check(not stream.is_ended, lambda: f"{stream.label} has ended, and is run again")
        self.check([*transfer.output] == stream.expected.output, lambda: (
            f"{stream.label} goes on behind {[*transfer.output]}, and its client has {stream.expected.output}"))
        stream.owner = engine
        if is_new:
            stream.weights = engine.facts.weights_digest
            assert self.groups is not None
            better = [each for each in self.groups.members if not should_leave(each)
                      and (not stream.request.needs_bits or each.has_bits(stream.request.bits))
                      and each.fits(most_tokens(stream.request))]
            is_good = not should_leave(member) and member.fits(most_tokens(stream.request))
            self.check(is_good or not better, lambda: (
                f"{stream.label} is given to group {engine.name}, which is {member.state}; {better[0].name} serves"))
        else:
            self.counts["moved"] += 1
            self.check(not should_leave(member), lambda: (
                f"{stream.label} moves to group {engine.name}, which is {member.state}"))
            stream.due_at = None if engine.has_trial else self._loop.time() + MAX_PAUSE
        self.tell(f"{stream.label} is {'given' if is_new else 'moved'} to {engine.name} behind "
                  f"{len(transfer.output)} tokens")

    def released(self, engine: WatchedEngine, transfer: Transfer) -> None:
        stream: WatchedStream = transfer.receiver  # type: ignore[assignment]
        self.check(not transfer.record.is_narrowed or engine._is_overdue, lambda: (
            f"{stream.label} leaves {engine.name}, which it has probably killed twice"))
        stream.owner = None

    def lost(self, engine: WatchedEngine) -> None:
        self.counts["losses"] += 1
        self.tell(f"engine {engine.name} has lost its group")
        for stream in engine.streams():
            stream.due_at = None

    def stuck(self, engine: WatchedEngine) -> None:
        self.counts["stuck"] += 1
        self.tell(f"group {engine.name} does not come back with a step")

    def pushed(self, stream: WatchedStream, sampled: Sampled) -> None:
        self.counts["tokens"] += 1
        self.check(not stream.is_ended, lambda: f"{stream.label} gets a token behind its end")
        if stream.owner is None:
            self.check(False, lambda: f"{stream.label} gets a token of an engine that has let go of it")
            return
        model = stream.model()
        self.check(model[0] == stream.weights, lambda: f"{stream.label} goes on with other weights")
        request = stream.request
        self.check(not request.needs_bits or stream.owner.facts.bits == request.bits, lambda: (
            f"{stream.label} needs the bits of {request.bits}, and gets those of {stream.owner.facts.bits}"))
        wrong = stream.expected.differs(sampled, model)
        self.check(wrong is None, lambda: f"{stream.label}: {wrong}")
        wants, number = request.wants_prompt_logprobs, len(stream.prompt_logprobs.logprobs)
        self.check(not wants or number == len(request.input_ids) - 1, lambda: (
            f"{stream.label} gets a token behind {number} prompt logprobs"))
        stream.due_at = None

    def failed(self, stream: WatchedStream, error: RouterError) -> None:
        """Sees whether a request had to get an error."""
        self.counts[type(error).__name__] += 1
        self.tell(f"{stream.label} fails: {error!r}")
        self.check(not stream.is_ended, lambda: f"{stream.label} fails behind its end")
        self.check(self._is_due(stream, error), lambda: f"{stream.label} fails with {error!r}")

    def _is_due(self, stream: WatchedStream, error: RouterError) -> bool:
        engine = stream.owner
        if isinstance(error, KilledGroup):
            return stream.is_poison or stream.num_solo_deaths >= MAX_SOLO_DEATHS
        if isinstance(error, Unhealthy) and engine is not None:
            is_late = self._loop.time() - engine.away_since >= self._max_downtime - 1e-3
            return not engine.has_group and is_late and not self.places(stream, engine)
        message = str(error)
        if "KV memory for" in message:
            return engine is None or engine._scheduler.memory.capacity <= stream.num_tokens + len(
                stream.request.input_ids) or engine._scheduler.memory.capacity < most_tokens(stream.request)
        if "the model was replaced" in message:
            return engine is not None and not self.places(stream, engine)
        if "would go on as another one" in message:
            return stream.request.needs_bits
        if "it is of another model" in message:
            return stream.expected.ask.adapter == "refused"
        return isinstance(error, GenerationError) and "while they loaded the adapter" in message and (
            self.counts["losses"] >= 4)

    def refused(self, stream: WatchedStream, error: RouterError) -> None:
        """Sees whether a request had to be refused before it was taken."""
        assert self.groups is not None
        self.counts["refused"] += 1
        self.tell(f"{stream.label} is refused: {error!r}")
        self.check(self._is_refusal_due(stream, error, self.groups.members), lambda: (
            f"{stream.label} is refused with {error!r}"))

    def _is_refusal_due(self, stream: WatchedStream, error: RouterError, members: Sequence[Member]) -> bool:
        request = stream.request
        able = [each for each in members
                if (each.has_bits if request.needs_bits else each.has_weights)(request.bits)]
        if isinstance(error, Unhealthy):
            return not any(each.engine.has_group for each in able)
        if "the model was replaced" in str(error):
            return not able
        if "KV memory for" in str(error):
            return not any(each.is_open and each.fits(most_tokens(request)) for each in able)
        return self._is_due(stream, error)

    def noted(self) -> None:
        """Sees whether everything has left the groups that it should leave."""
        for stream, member, place in self._leftovers():
            self.check(False, lambda stream=stream, member=member, place=place: (
                f"{stream.label} stays in group {member.name}, which is {member.state}, though {place.name} could take "
                "it"))
    def _leftovers(self) -> Iterator[tuple[WatchedStream, Member, Member]]:
        """Finds what should have left a group, and a group that could take it."""
        groups = self.groups
        for member in groups.members if groups is not None and len(groups.members) > 1 else ():
            engine: WatchedEngine = member.engine  # type: ignore[assignment]
            if not should_leave(member) or not engine.num_requests:
                continue
            for sequence in engine._scheduler._sequences.values():
                state = engine._requests.get(sequence.id)
                if state is None or (sequence.record.is_narrowed and not engine._is_overdue):
                    continue
                stream: WatchedStream = state.receiver  # type: ignore[assignment]
                if places := self.places(stream, engine):
                    yield stream, member, places[0]

    def tick(self) -> None:
        """Looks at everything, as must be done now and then."""
        groups, now = self.groups, self._loop.time()
        if groups is None:
            return
        late: dict[object, float] = {}
        for stream, member, place in self._leftovers():
            late[stream] = since = self._late.get(stream, now)
            self.check(now - since < GRACE, lambda stream=stream, member=member, place=place: (
                f"{stream.label} stays for {GRACE} s in group {member.name}, which is {member.state}, though "
                f"{place.name} could take it"))
        for member in groups.members:
            if member.is_gone and not member.engine.num_requests and len(groups.members) > 1:
                late[member] = since = self._late.get(member, now)
                self.check(now - since < GRACE, lambda member=member: (
                    f"group {member.name} is gone and has no requests, and is still there"))
            for stream in () if member.engine.has_group else member.engine.streams():  # type: ignore[attr-defined]
                case = stream, member, member.engine._lost_at
                late[case] = since = self._late.get(case, now)
                self.check(now - since < self._max_downtime + GRACE, lambda stream=stream, member=member: (
                    f"{stream.label} waits for group {member.name} for more than {self._max_downtime} s"))
        self._late = late
        for member in groups.members:
            self._check_order(member.engine)  # type: ignore[arg-type]
            self._check_pauses(member.engine, is_only=len(groups.members) == 1)  # type: ignore[arg-type]

    def _check_order(self, engine: WatchedEngine) -> None:
        scheduler = engine._scheduler
        orders = [[sequence.order for sequence in places] for places in (scheduler._waiting, scheduler._batch.running)]
        self.check(orders == [*map(sorted, orders)],
                   lambda: f"requests of group {engine.name} are out of order: {orders}")
        by_age = sorted(scheduler._sequences.values(), key=lambda sequence: sequence.age)
        serials = [engine._requests[each.id].receiver.serial for each in by_age if each.id in engine._requests]
        self.check(serials == sorted(serials), lambda: f"the ages in group {engine.name} are {serials}")

    def _check_pauses(self, engine: WatchedEngine, is_only: bool) -> None:
        is_late = engine._in_flight and engine._in_flight.seconds > SLOW_SECONDS
        is_well = engine.has_group and not is_late and not engine.has_trial and not is_only
        for stream in engine.streams():
            if not is_well:
                stream.due_at = None
            self.check(stream.due_at is None or self._loop.time() <= stream.due_at, lambda stream=stream: (
                f"{stream.label} pauses for more than {MAX_PAUSE} s in group {engine.name}, which is well"))

    def end(self) -> None:
        """Sees whether anything is left when all is over."""
        groups = self.groups
        assert groups is not None
        permits = groups._permits
        self.check(permits == self._limits.max_concurrent_requests, lambda: f"{permits} permits are left")
        for member in groups.members:
            self._check_rest(member.engine)  # type: ignore[arg-type]

    def _check_rest(self, engine: WatchedEngine) -> None:
        scheduler, name = engine._scheduler, engine.name
        self.check(not engine.num_requests and not scheduler._sequences, lambda: f"{name} has requests left")
        left = (scheduler.num_running, scheduler.num_waiting, scheduler.memory.num_held, len(scheduler._batch.leaving))
        self.check(left == (0, 0, 0, 0), lambda: (
            f"of group {name} are left: running, waiting, blocks, returning: {left}"))
        slots = sorted(scheduler._batch.free_slots)
        self.check(slots == [*range(self._limits.max_slots)], lambda: f"the free slots of {name} are {slots}")
        self.check(not scheduler.suspects._cohorts, lambda: f"suspects are left in group {name}")
        holders = sum(each.num_holders for each in scheduler.adapters._residents.values())
        self.check(not holders, lambda: f"{holders} sequences hold adapters in group {name}")
        assert scheduler._live_prefixes is not None
        self.check(not scheduler._live_prefixes._counts, lambda: f"prefixes are left in group {name}")
