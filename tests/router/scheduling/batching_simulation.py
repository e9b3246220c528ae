"""Seeded traffic under a policy of batching: nobody joins a batch but those who waited when it began."""

from functools import partial
from typing import Any

from penstock.router.scheduling.batching import Batching, Dynamic, Static
from penstock.router.scheduling.scheduler import Scheduler
from tests.router.scheduling.simulation import Simulation

DELAY = 5.0


class BatchingSimulation(Simulation):
    """Sees that batches are whole under the policy `kind`; its clock counts the times that a step is planned."""

    def __init__(self, seed: int, depth: int, kind: type[Static] | type[Dynamic], **options: Any) -> None:
        self.kind = kind
        self.now = 0.0
        self.idle_since: float | None = None
        self.is_closed = False
        self.formed: set[int] = set()
        """The sequences that waited when nobody had a slot last."""
        self.batching: Batching
        super().__init__(seed, depth, partial(self.make_scheduler), **options)  # type: ignore[arg-type]

    def make_scheduler(self, max_slots: int, **options: Any) -> Scheduler:
        self.batching = (Static(max_slots) if self.kind is Static else
                         Dynamic(max_slots, DELAY, lambda: self.now))
        return Scheduler(max_slots=max_slots, batching=self.batching, **options)

    def run(self, num_steps: int) -> None:
        for _ in range(num_steps):
            self.visit()
            self.advance(self.visit)
        self.is_closed = True
        self.batching.close()
        super().run(0)

    def plan(self) -> bool:
        self.now += 1
        is_empty = not self.scheduler._batch.running and not self.scheduler._batch.leaving
        if is_empty:
            self.formed = {sequence.id for sequence in self.scheduler._waiting}
            if self.formed and self.idle_since is None:
                self.idle_since = self.now
        self.may_gather = not self.is_closed and not self.present
        is_suspect_alone = self.scheduler.suspects.alone is not None
        is_planned = super().plan()
        joined = {admission.sequence_id for admission in self.plans[-1].admitted} if is_planned else set()
        if joined and not is_suspect_alone:
            assert joined <= self.formed, f"sequences {joined - self.formed} join a batch that runs"
            if is_empty and not self.is_closed and len(self.formed) < self.num_slots:
                assert self.kind is Dynamic, "a static batch begins with places that may still be taken"
                assert self.idle_since is not None
                assert self.now - self.idle_since >= DELAY, "a batch begins before the delay is over"
            self.counts["batches"] += is_empty
        if not is_empty or joined:
            self.idle_since = None
        return is_planned
