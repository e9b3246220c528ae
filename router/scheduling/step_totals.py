"""The steps of a group, counted together."""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class StepTotals:
    """Counts the steps of a group up to one of them, which is the last."""

    num_steps: int = 0
    num_rows: int = 0
    prompt_seconds: float = 0.0
    """The part of their time that went to prompts, and to what was computed once more."""
