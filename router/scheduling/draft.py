"""The draft of a plan, to which the scheduler adds rows."""

from collections.abc import Iterable

from penstock.contract.admission import Admission
from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.router.scheduling.fork import Fork
from penstock.router.scheduling.sequence import Sequence


class Draft:
    """Collects a step's rows with their sequences, and keeps what is left of the step's `whole` budget of tokens."""

    def __init__(self, budget: int) -> None:
        self.whole = self.budget = budget
        self.rows: list[tuple[Sequence, Row]] = []
        self.admitted: list[Admission] = []
        self.chunks: list[tuple[int, int, int]] = []

    def add(self, sequence: Sequence, row: Row) -> None:
        """Adds a row that the budget has room for."""
        self.rows.append((sequence, row))
        self.budget -= row.num_inputs

    def add_fork(self, sequence: Sequence, fork: Fork) -> None:
        """Adds a fork of a sequence whose row was added."""
        sequence.forks.append(fork)
        self.budget -= fork.row.num_inputs

    def plan(self, step_id: int, cleared_slots: Iterable[int], preempted: Iterable[int]) -> Plan:
        """Makes the plan of all that was added."""
        forks = [fork for sequence, _ in self.rows for fork in sequence.forks]
        return Plan(
            step_id, tuple(each for sequence, row in self.rows for each in (row, *(f.row for f in sequence.forks))),
            tuple(cleared_slots), tuple(copy for fork in forks for copy in fork.copies),
            tuple(self.admitted), tuple(preempted),
            masked=tuple((row.slot, sequence.id, row.drafts) for sequence, row in self.rows if row.late_mask),
            chunks=tuple(self.chunks))
