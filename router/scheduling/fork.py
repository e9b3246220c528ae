"""Forks: other ways on from a sequence.

A fork has a slot of its own, shares the full blocks of its sequence, and has a copy of the block that is partly
written. It may be taken, which exchanges it with what its sequence has, or dropped, which gives its slot and its blocks
back; or it becomes what a new sequence begins with.
"""

from dataclasses import dataclass

from penstock.contract.block_copy import BlockCopy
from penstock.contract.row import Row


@dataclass(slots=True)
class Fork:
    """Holds a slot, and blocks that follow the first `num_shared` of its sequence's blocks."""

    slot: int
    blocks: list[int]
    num_shared: int
    copies: tuple[BlockCopy, ...]
    """The order to copy the block that the sequence has written a part of, if there is one."""


@dataclass(slots=True)
class GuessFork(Fork):
    """Verifies other guesses of how a sequence goes on than the sequence's own row does, and ends with its step."""

    row: Row
    num_own: int
    """How many of its guesses the sequence's row does not have."""
