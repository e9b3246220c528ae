"""Forks: other guesses of how a sequence goes on, which its step verifies in rows of their own.

A fork has a slot, shares the full blocks of its sequence, has a copy of the block that is partly written, and ends with
its step. If more of its guesses are right than of the sequence's own row, the sequence goes on in the fork's slot and
blocks.
"""

from dataclasses import dataclass

from penstock.contract.block_copy import BlockCopy
from penstock.contract.row import Row


@dataclass(slots=True)
class Fork:
    """Holds a slot, and blocks that follow some of its sequence's."""

    slot: int
    blocks: list[int]
    num_shared: int
    """How many of the sequence's blocks come before its own."""
    row: Row
    num_own: int
    """How many of its guesses the sequence's row does not have."""
    copies: tuple[BlockCopy, ...]
    """The order to copy the block that the sequence has written a part of, if there is one."""
