"""The actor that keeps a router running, and as many groups as there should be."""

import logging
import secrets
import threading
import time
from collections.abc import Sequence

import ray

from penstock.cluster import places
from penstock.cluster.child import reset_niceness
from penstock.cluster.config import ClusterConfig
from penstock.cluster.plan import Unit, decide
from penstock.cluster.reports import Report, State, Status
from penstock.cluster.scaling import Load, Wish, recent, settled, wished
from penstock.router import logs

log = logging.getLogger(__name__)

TURN_SECONDS, ANSWER_SECONDS = 1.0, 3.0
ADOPTION_SECONDS = 30.0
"""For how long a new keeper waits for hosts that do not answer before it plans without them."""
UNKNOWN_SECONDS = 15.0
"""After how long without a word from the router all that was known of the load is out of date, and the router is not
waited for at the end."""
MOST_BACKOFF_SECONDS = 60.0


class Backoff:
    """How long the next start waits: the longer, the more have failed in a row."""

    def __init__(self) -> None:
        self._num_failures, self._not_before = 0, 0.0

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._not_before

    def failed(self) -> None:
        self._num_failures += 1
        self._not_before = time.monotonic() + min(MOST_BACKOFF_SECONDS, 2.0 ** self._num_failures)


class Keeper:
    """Compares the wanted groups with the existing ones, and takes a step towards them: once a second, or every four
    while a host does not answer.

    It learns all else but the configuration from the hosts, so that after its own death the next keeper goes on with
    those that live. Nothing that answers clients waits for it."""

    def __init__(self, config: ClusterConfig, machine: str) -> None:
        logs.configure("INFO", json_output=False)
        reset_niceness()
        self._config, self._machine = config, machine
        self._lock = threading.Lock()
        self._is_to_end = False
        self._status = Status(None)
        self._questions = places.Questions()
        self._reports: dict[str, Report] = {}
        self._dead: dict[str, str] = {}
        self._groups: dict[str, list[places.Handle | None]] = {}
        self._router: places.Handle | None = None
        self._has_answered = False
        """Whether the router's host has answered the last question."""
        self._router_told_at = time.monotonic()
        self._ages: dict[str, int] = {}
        self._ready: set[str] = set()
        self._wishes: list[Wish] = []
        self._num_groups: int | None = None
        """How many groups there should be, once it is known how many there are."""
        self._groups_backoff, self._router_backoff = Backoff(), Backoff()
        self._trouble = ""
        self._adopted_until: float | None = None
        threading.Thread(target=self._run, name="keeper", daemon=True).start()

    def config(self) -> ClusterConfig:
        return self._config

    def status(self) -> Status:
        with self._lock:
            return self._status

    def end(self) -> None:
        """Ends all: the router once its requests have finished, then groups."""
        self._is_to_end = True

    def _adopt(self) -> float:
        """Finds the hosts that an earlier keeper has made, and gives back what it reserved for others; returns the
        time."""
        names = set(ray.util.list_named_actors())
        self._router = ray.get_actor(places.ROUTER) if places.ROUTER in names else None
        for group, ranks in places.group_parts(names).items():
            self._groups[group] = [ray.get_actor(places.part_name(group, rank)) if rank in ranks else None
                                   for rank in range(self._config.group.nodes)]
            self._ages[group] = len(self._ages)
        for name in places.reserved(self._config) - {places.ROUTER, *self._groups}:
            places.remove_place(self._config, name)
        log.info("keeping %s: found %d groups and %s router", self._config.name, len(self._groups),
                 "no" if self._router is None else "a")
        return time.monotonic()

    def _run(self) -> None:
        while True:
            try:
                self._turn()
            except Exception as error:
                log.exception("the keeper tries again")
                self._trouble = str(error)
            time.sleep(TURN_SECONDS)

    def _turn(self) -> None:
        if self._adopted_until is None:
            self._adopted_until = self._adopt() + ADOPTION_SECONDS
        self._look()
        if self._has_adopted():
            units = self._units()
            self._take_note(units)
            if self._is_to_end:
                self._end_router()
            if self._router is None or not self._is_to_end:
                self._act(units, 0 if self._is_to_end else self._scaled(units))
        self._publish()

    def _look(self) -> None:
        """Asks all hosts."""
        now = time.monotonic()
        handles = {places.part_name(group, rank): handle for group, parts in self._groups.items()
                   for rank, handle in enumerate(parts) if handle is not None}
        if self._router is not None:
            handles[places.ROUTER] = self._router
        reports, dead = self._questions.ask(handles, ANSWER_SECONDS)
        self._reports = {name: report for name, report in {**self._reports, **reports}.items() if name in handles}
        self._dead = dead
        self._has_answered = places.ROUTER in reports
        if self._has_answered:
            self._router_told_at = now
        for name, cause in dead.items():
            self._reports.pop(name, None)
            self._trouble = f"{name}: {cause}"
            log.warning("%s is dead: %s", name, cause)

    def _has_adopted(self) -> bool:
        """Tells whether it is known what there is: a list of groups with holes in it would have routers leave those
        that are missing."""
        waits = any(handle is not None and places.part_name(group, rank) not in (self._reports | self._dead)
                    for group, parts in self._groups.items() for rank, handle in enumerate(parts))
        if not waits:
            self._adopted_until = 0.0
        return self._adopted_until is not None and time.monotonic() >= self._adopted_until

    def _units(self) -> list[Unit]:
        for group, parts in self._groups.items():
            for rank in range(len(parts)):
                if places.part_name(group, rank) in self._dead:
                    parts[rank] = None
        return [Unit(group, tuple(self._reports.get(places.part_name(group, rank)) for rank in range(len(parts))),
                     None in parts, self._ages[group]) for group, parts in self._groups.items()]

    def _take_note(self, units: Sequence[Unit]) -> None:
        """Notes which groups take requests now, and what troubles others."""
        for unit in units:
            if unit.is_ready and unit.name not in self._ready:
                self._ready.add(unit.name)
                self._groups_backoff, self._trouble = Backoff(), ""
                log.info("group %s is ready", unit.name)
            for part in unit.parts:
                if part is not None and part.trouble:
                    self._trouble = f"group {unit.name}: {part.trouble}"
        router = self._reports.get(places.ROUTER)
        if router is not None and router.trouble:
            self._trouble = f"router: {router.trouble}"

    def _scaled(self, units: Sequence[Unit]) -> int:
        """Returns how many groups there should be now."""
        now, scaling = time.monotonic(), self._config.scaling
        load = self._load()
        if load is not None:
            self._wishes = [*recent(self._wishes, now, scaling), Wish(now, wished(load, scaling))]
        elif self._wishes and self._wishes[-1].time < now - UNKNOWN_SECONDS:
            self._wishes = []
        before = self._num_groups
        if before is None:
            before = sum(not unit.is_leaving for unit in units)
        self._num_groups = settled(self._wishes, before, now, scaling)
        if self._num_groups != before:
            log.info("%d groups instead of %d: %s", self._num_groups, before, load)
        return self._num_groups

    def _load(self) -> Load | None:
        report = self._reports.get(places.ROUTER)
        return None if report is None else report.load

    def _act(self, units: Sequence[Unit], num_groups: int) -> None:
        decision = decide(units, num_groups)
        for name in decision.start:
            self._start(name)
        for name in decision.stop:
            for handle in self._groups[name]:
                if handle is not None:
                    handle.stop.remote()
        for name in decision.remove:
            self._remove(name)
        for _ in range(decision.num_to_make if self._groups_backoff.is_over else 0):
            self._make()
        if not self._is_to_end:
            self._tell_router(decision.addresses)

    def _make(self) -> None:
        name = f"{self._config.name}-{secrets.token_hex(3)}"
        log.info("making group %s", name)
        self._ages[name] = max(self._ages.values(), default=-1) + 1
        self._groups[name] = [*places.make_group(self._config, name, self._machine)]

    def _start(self, name: str) -> None:
        first = self._reports[places.part_name(name, 0)]
        for handle in self._groups[name]:
            assert handle is not None
            handle.start.remote(first.master)

    def _remove(self, name: str) -> None:
        log.info("removing group %s", name)
        for handle in self._groups.pop(name):
            if handle is not None:
                places.end(handle)
        places.remove_place(self._config, name)
        del self._ages[name]
        if name in self._ready:
            self._ready.remove(name)
        elif not self._is_to_end:
            self._groups_backoff.failed()

    def _tell_router(self, addresses: Sequence[str]) -> None:
        """Has a router run, and tells it where the groups are: each time that it has answered, since what a host is
        told while it has no place would all reach it later."""
        if places.ROUTER in self._dead:
            self._router = None
            self._router_backoff.failed()
        if self._router is None and self._router_backoff.is_over:
            self._router = places.make_router(self._config, self._machine)
        report = self._reports.get(places.ROUTER)
        if report is not None and report.state is State.READY:
            self._router_backoff = Backoff()
        if self._router is not None and self._has_answered and addresses:
            self._router.follow.remote(list(addresses))

    def _end_router(self) -> None:
        """Has the router end in order; one that has no place, or does not answer any more, at once."""
        if self._router is not None:
            report = self._reports.get(places.ROUTER)
            is_silent = time.monotonic() - self._router_told_at > UNKNOWN_SECONDS
            has_ended = report is not None and report.state in (State.PLACED, State.ENDED)
            if has_ended or is_silent or places.ROUTER in self._dead:
                places.end(self._router)
                self._router = None
            elif self._has_answered:
                self._router.stop.remote()
        if self._router is None:
            places.remove_place(self._config, places.ROUTER)

    def _publish(self) -> None:
        def told(name: str) -> tuple[str, str]:
            report = self._reports.get(name)
            return ("waits for a place", "") if report is None else (report.state.value, report.address
                                                                     or report.machine)

        groups = {group: [told(places.part_name(group, rank)) for rank in range(len(parts))]
                  for group, parts in self._groups.items()}
        router = None if self._router is None else told(places.ROUTER)
        num_groups = 0 if self._is_to_end else self._num_groups
        with self._lock:
            self._status = Status(num_groups, groups, router, self._load(), self._trouble,
                                  self._is_to_end and not groups and router is None)
