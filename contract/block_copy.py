"""A plan's order to copy a block."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """Orders that what a block holds be copied into another one, before a step's rows run."""

    source: int
    target: int
