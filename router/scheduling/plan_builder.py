"""The builder of a plan, to which the scheduler adds rows."""

from collections.abc import Iterable

from penstock.contract.admission import Admission
from penstock.contract.block_copy import BlockCopy
from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.router.scheduling.fork import GuessFork
from penstock.router.scheduling.sequence import Sequence


class PlanBuilder:
    """Collects a step's rows with their sequences, and keeps what is left of the step's `whole` budget of tokens."""

    def __init__(self, budget: int) -> None:
        self.whole = self.budget = budget
        self.rows: list[tuple[Sequence, Row]] = []
        self.admitted: list[Admission] = []
        self.chunks: list[tuple[int, int, int]] = []

    def add(self, sequence: Sequence, row: Row) -> None:
        """Adds a row that the budget has room for. The row's tokens count as planned for its sequence."""
        self.rows.append((sequence, row))
        num_inputs = row.num_inputs
        self.budget -= num_inputs
        sequence.computed += num_inputs
        sequence.num_blocks_sent += len(row.new_blocks)
        sequence.promised += row.is_sampled
        sequence.in_flight += 1

    def add_fork(self, sequence: Sequence, fork: GuessFork) -> None:
        """Adds a fork of a sequence whose row was added."""
        sequence.forks.append(fork)
        self.budget -= fork.row.num_inputs

    def build(
        self, step_id: int, cleared_slots: Iterable[int], preempted: Iterable[int], copies: Iterable[BlockCopy]
    ) -> Plan:
        """Makes the plan of all that was added. `copies` are those of sequences that forked since the last plan."""
        forks = [fork for sequence, _ in self.rows for fork in sequence.forks]
        return Plan(
            step_id, tuple(each for sequence, row in self.rows for each in (row, *(f.row for f in sequence.forks))),
            tuple(cleared_slots), (*copies, *(copy for fork in forks for copy in fork.copies)),
            tuple(self.admitted), tuple(preempted),
            masked=tuple((row.slot, sequence.id, row.drafts) for sequence, row in self.rows if row.late_mask),
            chunks=tuple(self.chunks))
