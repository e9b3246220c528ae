"""A sequence that begins to run."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Admission:
    """Names a sequence that begins to run, and how many of its tokens it found in the prefix cache."""

    sequence_id: int
    hit_tokens: int = 0
