"""The builder of a plan, to which the scheduler adds rows."""

from collections.abc import Iterable

from penstock.contract.admission import Admission
from penstock.contract.block_copy import BlockCopy
from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.router.scheduling.batch import Batch
from penstock.router.scheduling.cached_block import Node
from penstock.router.scheduling.fork import GuessFork
from penstock.router.scheduling.sequence import Sequence
from penstock.router.scheduling.wait_reasons import WaitReason

MAX_TRIED = 64
"""How many whole texts that do not fit into what is left of a step are looked at."""


class PlanBuilder:
    """Collects a step's rows with their sequences, and keeps what is left of the step's `whole` budget of tokens. No
    text is cut if each of them `is_whole`."""

    def __init__(self, budget: int, is_whole: bool = False) -> None:
        self.is_whole = is_whole
        self.whole = self.budget = budget
        self._num_tried = 0
        self.rows: list[tuple[Sequence, Row]] = []
        self.num_tokens = 0
        self.admitted: list[Admission] = []
        self.chunks: list[tuple[int, int, int]] = []

    def obstacle_to(self, sequence: Sequence) -> WaitReason | None:
        """Says that a text which is not to be cut has no room beside the rows; one that is longer than a step should
        be has a step of its own. Once `MAX_TRIED` have none the step is full: thousands may wait."""
        if not self.is_whole or not self.rows or len(sequence.tokens) <= self.budget:
            return None
        self._num_tried += 1
        if self._num_tried == MAX_TRIED:
            self.budget = 0
        return WaitReason.BUDGET

    def admit(self, sequence: Sequence, matched: Node, batch: Batch) -> None:
        """Lets a waiting sequence into the batch, behind the cached blocks that it was matched with."""
        batch.admit(sequence, matched)
        self.admitted.append(Admission(sequence.id, sequence.computed))

    def add(self, sequence: Sequence, row: Row) -> None:
        """Adds a row that the budget has room for. The row's tokens count as planned for its sequence."""
        self.rows.append((sequence, row))
        num_inputs = row.num_inputs
        self.num_tokens += num_inputs
        self.budget = max(0, self.budget - num_inputs)  # a whole text may be longer, where it is a step's first
        sequence.computed += num_inputs
        sequence.num_blocks_sent += len(row.new_blocks)
        sequence.is_told = True
        sequence.promised += row.is_sampled
        sequence.in_flight += 1

    def add_fork(self, sequence: Sequence, fork: GuessFork) -> None:
        """Adds a fork of a sequence whose row was added."""
        sequence.forks.append(fork)
        self.num_tokens += fork.row.num_inputs
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
