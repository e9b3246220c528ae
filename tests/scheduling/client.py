"""What the simulation knows of a request and of a step in flight, apart from the scheduler's own record."""

from dataclasses import dataclass

from router.scheduling.plan import Plan, Row
from router.scheduling.sequence import Sequence
from tests.scheduling.shard_mirror import Resident


@dataclass(slots=True, eq=False)
class Client:
    """A request and the answer so far; `chain` is what the positions of `tokens` hold on a shard."""

    sequence: Sequence
    tokens: list[int]
    chain: list[int]
    salt: int
    kills_at: int | None = None
    """The length at which its next token takes the group down."""
    pause: int = 0
    """Steps since its last row."""


@dataclass(slots=True)
class Flight:
    """A plan in flight; each row with its client and the blocks that it had when planned."""

    plan: Plan
    rows: list[tuple[Client, Row, tuple[int, ...]]]
    firsts: dict[int, Resident]
