"""The places of sequences: each waits, runs in a slot with blocks of memory, or is on its way from there."""

from bisect import insort
from operator import attrgetter

from penstock.contract.admission import Admission
from penstock.router.scheduling.draft import Draft
from penstock.router.scheduling.memory import KvMemory
from penstock.router.scheduling.occupancy import Occupancy, load_of
from penstock.router.scheduling.prefix_cache import Node
from penstock.router.scheduling.residency import Residency
from penstock.router.scheduling.sequence import Sequence, Status
from penstock.router.scheduling.step_budget import StepBudget
from penstock.router.scheduling.suspects import Suspects
from penstock.router.scheduling.waits import Wait, settled

by_age = attrgetter("age")


class Places:
    """Moves sequences from one place to another; the scheduler, which is made of it, says which. Slots and blocks are
    taken and given back nowhere else."""

    def __init__(self, memory: KvMemory, max_slots: int, adapters: Residency, budget: StepBudget) -> None:
        self.memory = memory
        self.adapters = adapters
        self.budget = budget
        self._waiting: list[Sequence] = []
        self._running: list[Sequence] = []
        self._returning: list[Sequence] = []
        self._suspects = Suspects()
        self._free_slots = list(range(max_slots - 1, -1, -1))
        self._cleared_slots: list[int] = []
        self._preempted: list[int] = []
        self._waits: dict[Wait, int] = {}
        """Why those wait that the latest plan has passed by."""

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def occupancy(self) -> Occupancy:
        memory = self.memory
        wasted = sum(len(s.blocks) * memory.block_size - s.computed for s in self._running)
        return Occupancy(self.num_waiting, self.num_running, memory.num_held, memory.num_available, wasted,
                         self.budget.tokens, memory.block_size, settled(self._waits, self.num_waiting))

    @property
    def load(self) -> float:
        """How much is to be done, in blocks, as `load_of` counts it."""
        return load_of(self._waiting, self._running, self.memory)

    def _admit(self, sequence: Sequence, matched: Node, draft: Draft) -> None:
        self._waiting.remove(sequence)
        sequence.status = Status.RUNNING
        sequence.slot = self._free_slots.pop()
        sequence.prefill_end = len(sequence.tokens)
        sequence.num_passed = 0
        self.memory.begin(sequence, matched)
        self.adapters.hold(sequence.adapter)
        insort(self._running, sequence, key=by_age)
        draft.admitted.append(Admission(sequence.id, sequence.computed))

    def _keep_waiting(self, reason: Wait, number: int = 1) -> None:
        """Counts sequences that the plan passes by."""
        self._waits[reason] = self._waits.get(reason, 0) + number

    def _grow(self, sequence: Sequence, length: int) -> bool:
        """Gives the sequence blocks for `length` tokens, and preempts the youngest sequences for that if need be.
        Returns whether the sequence has them; if not, it sits this step out."""
        needed = self.memory.blocks_for(length) - len(sequence.blocks)
        if needed <= 0:
            return True
        while needed > self.memory.num_available:
            if needed <= self.memory.num_available + sum(s.num_blocks_forked for s in self._running) + sum(
                    s.num_blocks_held for s in self._returning):
                return False  # it waits for the steps in flight
            # A suspect that runs alone has to run next, whatever its age.
            victim = next(s for s in reversed(self._running) if s is not sequence or s is not self._suspects.alone)
            self._evict(victim)
            if victim is sequence:
                return False
        self.memory.extend(sequence, needed)
        return True

    def _evict(self, victim: Sequence) -> None:
        """Preempts a sequence for the sake of another, and lets the next plan tell. Its slot and its blocks are free
        at once if no step in flight names it."""
        self._preempt(victim)
        self._preempted.append(victim.id)

    def _preempt(self, sequence: Sequence) -> None:
        """Stops a sequence; once no step names it, it waits again, to be computed from the start."""
        self._running.remove(sequence)
        sequence.status = Status.DRAINING
        self._settle(sequence)

    def _settle(self, sequence: Sequence) -> None:
        """Takes back blocks and slot of a sequence that gets no more rows, once no step in flight names it."""
        if sequence in self._returning:
            self._returning.remove(sequence)
        if sequence.in_flight:
            self._returning.append(sequence)
            return
        self._release_forks(sequence)
        if sequence.slot is not None:
            self.memory.release(sequence)
            self.adapters.release(sequence.adapter)
            self._release_slot(sequence.slot)
        sequence.slot = None
        sequence.is_verifying = False
        sequence.computed = sequence.num_blocks_sent = sequence.prefill_end = 0
        if sequence.status is Status.DRAINING:
            sequence.status = Status.WAITING
            insort(self._waiting, sequence, key=by_age)

    def _release_forks(self, sequence: Sequence) -> None:
        """Takes back what the forks of a sequence hold, whose step is back or lost."""
        while sequence.forks:
            fork = sequence.forks.pop()
            self.memory.cache.release(fork.blocks)
            self._release_slot(fork.slot)

    def _release_slot(self, slot: int) -> None:
        self._free_slots.append(slot)
        self._cleared_slots.append(slot)
