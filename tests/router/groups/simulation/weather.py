"""What goes wrong, and when; after a while it clears up."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.router.groups.simulation.group import Group

if TYPE_CHECKING:
    from tests.router.groups.simulation.world import World


class Weather:
    """Has groups die, hang, drain, be cut off, vanish and come back as others, and kills the router, at moments of the
    first `seconds`. Then everything is there again, and stays."""

    def __init__(self, world: "World", seed: int, seconds: float, num_faults: int, num_router_deaths: int) -> None:
        self._world = world
        self._random = random.Random(seed)
        self._seconds = seconds
        self._router_deaths = num_router_deaths
        self._num_faults = num_faults
        self.is_fair = False
        self._loop = asyncio.get_running_loop()
        for group in world.groups:
            group.restart = lambda group=group: self._restart(group)

    async def run(self) -> None:
        kinds: list[Callable[[Group], None]] = [getattr(self, f"_{name}") for name in self._world.faults]
        moments: list[tuple[float, Callable[[], None]]] = []
        for _ in range(self._num_faults):
            kind, group = self._random.choice(kinds), self._random.choice(self._world.groups)
            moments.append((self._random.uniform(0.05, self._seconds), lambda kind=kind, group=group: kind(group)))
        for _ in range(self._router_deaths):
            moments.append((self._random.uniform(0.3, self._seconds), self._world.kill_router))
        for when, act in sorted(moments, key=lambda moment: moment[0]):
            await asyncio.sleep(self._world.begun_at + when - self._loop.time())
            if self.is_fair:
                return
            act()
        await asyncio.sleep(max(0.0, self._world.begun_at + self._seconds - self._loop.time()))
        if not self.is_fair:
            self.clear_up()

    def clear_up(self) -> None:
        """Has everything there, for good."""
        self.is_fair = True
        self._world.tell("the weather is fair")
        for group in self._world.groups:
            group.is_cut = group.is_draining = False
            group.hangs_for = group.is_slow_for = None
            self._world.directory.list(group.address)
            if not group.is_up:
                self._start(group, group.life)
            group.note()

    def _later(self, act: Callable[[], None], least: float, most: float) -> None:
        """Does something after a while, unless the weather is fair by then."""
        self._loop.call_later(self._random.uniform(least, most), lambda: self.is_fair or act())

    def _restart(self, group: Group) -> None:
        """Starts a group again that has died: soon, or after its requests have failed."""
        is_slow = not self.is_fair and self._random.random() < 0.2
        self._loop.call_later(self._random.uniform(2.0, 8.0) if is_slow else self._random.uniform(0.05, 1.0),
                              self._start, group, group.life)

    def _start(self, group: Group, life: int) -> None:
        if group.is_up or group.life != life:
            return
        chance, facts = self._random.random(), group.facts
        if self._world.has_other_weights and chance < 0.4:
            group.start(replace(facts, weights_digest=self._random.choice(["w1", "w2"])))
        elif self._world.has_other_numerics and chance < 0.4:
            group.start(replace(facts, numerics=self._random.choice(["n1", "n2"])))
        elif chance < 0.6:
            group.start(keeps_memory=True)
        elif chance < 0.9 or self.is_fair:
            group.start(replace(facts, num_blocks=facts.first_blocks))
        else:
            group.start(replace(facts, num_blocks=self._random.randint(12, facts.first_blocks)))

    def _kill(self, group: Group) -> None:
        group.die("killed")

    def _hang(self, group: Group) -> None:
        group.hangs_for = self._random.choice([0.5, 1.0, 5.0])

    def _slow(self, group: Group) -> None:
        group.is_slow_for = self._random.uniform(0.5, 5.0)

    def _cut(self, group: Group) -> None:
        group.cut()

    def _partition(self, group: Group) -> None:
        group.is_cut = True
        group.cut("nobody reaches it")
        group.note()

        def heal() -> None:
            group.is_cut = False
            group.note()
        self._later(heal, 0.1, 4.0)

    def _drain(self, group: Group) -> None:
        self._world.tell(f"group {group.name} drains")
        group.is_draining = True
        group.note()

        def end() -> None:
            if self._random.random() < 0.5:
                group.is_draining = False
                group.note()
            else:
                self._world.directory.list(group.address, is_listed=False)
                group.die("drained")
                group.is_draining = False
        self._later(end, 0.2, 2.0)

    def _vanish(self, group: Group) -> None:
        self._world.tell(f"group {group.name} is not listed")
        self._world.directory.list(group.address, is_listed=False)
        if self._random.random() < 0.5:
            self._later(lambda: group.die("not needed"), 0.0, 0.5)
        self._later(lambda: self._world.directory.list(group.address), 0.1, 4.0)
