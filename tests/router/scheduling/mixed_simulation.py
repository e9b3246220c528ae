"""Seeded traffic of several priorities, and of the background among others."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from penstock.contract.plan import Plan
from penstock.router.scheduling.priorities import BACKGROUND
from penstock.router.scheduling.sequence import Sequence, Status
from tests.router.scheduling.invariants import check_background_waits, note_passed
from tests.router.scheduling.simulated_client import Client, Flight
from tests.router.scheduling.simulation import Simulation

PRIORITIES = [-2, -1, 0, 0, 0, 1, 2, BACKGROUND, BACKGROUND, BACKGROUND]


class MixedSimulation(Simulation):
    """Sees that sequences come in their order, and that the background has only what the others leave."""

    def __init__(self, seed: int, *arguments: Any, **options: Any) -> None:
        super().__init__(seed, *arguments, **options)
        self.classes = random.Random(seed)
        self.due: set[int] = set()
        """The others that run and have something to compute."""

    def priority(self) -> int:
        return self.classes.choice(PRIORITIES)

    def added(self, sequence: Sequence) -> None:
        self.counts["passed"] += note_passed(self.scheduler, sequence, self.live)

    def plan(self) -> bool:
        """Plan a step, and look whether the background has made way for others before anything was added to it."""
        self.due = {id for id, client in self.live.items() if client.sequence.status is Status.RUNNING
                    and not client.sequence.is_background and self.is_due(client.sequence)}
        background = self.scheduler._background
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(background, "make_way", partial(self.make_way, background.make_way))
            return super().plan()

    def make_way(self, make_way: Callable[[list[Sequence]], None], waiting: list[Sequence]) -> None:
        make_way(waiting)
        check_background_waits(self.scheduler)

    def check_plan(self, planned: Flight, named: set[int], most: int) -> None:
        """The rows of the background come last, and only where all others have one."""
        super().check_plan(planned, named, most)
        is_alone, passed = self.scheduler._background.is_alone, self.due - named
        in_background = [client.sequence.is_background for client, _, _ in planned.rows]
        assert in_background == sorted(in_background), "a row of the background comes before one of others"
        self.counts["background rows"] += sum(in_background)
        if not any(in_background) or self.scheduler.suspects.alone is not None:
            return
        prompts = [not row.is_decode for client, row, _ in planned.rows if not client.sequence.is_background]
        assert not any(prompts), "the background has a row beside a prompt of others"
        assert not passed or self.is_memory_coming(), f"sequences {passed} get no row, and the background has some"
        assert prompts or not self.in_flight or is_alone, "who comes would wait for two steps of the background"
        self.counts["background alone"] += is_alone

    def may_pause(self, client: Client) -> bool:
        return client.sequence.is_background and any(not each.sequence.is_background for each in self.live.values())

    def time(self, plan: Plan) -> None:
        super().time(plan)
        self.scheduler._background.observe(plan.num_tokens, 10 ** self.classes.uniform(-2, 1))
