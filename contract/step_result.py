"""What a step yielded."""

from dataclasses import dataclass

from penstock.contract.row_result import RowResult


@dataclass(frozen=True, slots=True)
class StepResult:
    """Has what a step yielded: its rows with tokens or prompt logprobs, in any order. Times are in seconds."""

    step_id: int
    rows: tuple[RowResult, ...]
    forward_time: float = 0.0
    sample_time: float = 0.0
    draft_time: float = 0.0
    """Of the draft model, before the model."""

    def by_slot(self) -> dict[int, RowResult]:
        """Returns the rows by their slots, of which each has one."""
        rows = {row.slot: row for row in self.rows}
        assert len(rows) == len(self.rows), f"step {self.step_id} has two results for a slot"
        return rows
