"""The result of a step."""

from dataclasses import dataclass

from penstock.contract.row_result import RowResult


@dataclass(frozen=True, slots=True)
class StepResult:
    """Holds the results of a step: its rows with tokens, prompt logprobs or others, in any order. The durations
    are nanoseconds, and their properties seconds."""

    step_id: int
    rows: tuple[RowResult, ...]
    forward_ns: int = 0
    """Of the model and the exchanges between the shards."""
    sample_ns: int = 0
    draft_ns: int = 0
    """Of the draft model, before the model."""
    energy_uj: int | None = None
    """The microjoules that were measured for it, or None where they aren't: of a shard those of the part of its machine
    that it stands for, of a group those of all its shards."""

    @property
    def forward_time(self) -> float:
        return self.forward_ns / 1e9

    @property
    def sample_time(self) -> float:
        return self.sample_ns / 1e9

    @property
    def draft_time(self) -> float:
        return self.draft_ns / 1e9

    def by_slot(self) -> dict[int, RowResult]:
        """Returns the rows by their slots, of which each has one."""
        rows = {row.slot: row for row in self.rows}
        assert len(rows) == len(self.rows), f"step {self.step_id} has two results for a slot"
        return rows
