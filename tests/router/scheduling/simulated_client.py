"""What the simulation knows of a request and of a step in flight, apart from the scheduler's own record."""

from dataclasses import dataclass, field

from penstock.router.scheduling.plan import Plan, Row
from penstock.router.scheduling.sequence import Sequence
from tests.router.scheduling.shard_mirror import Resident


@dataclass(slots=True, eq=False)
class Client:
    """A request and the answer so far; `chain` is what the positions of `tokens` hold on a shard."""

    sequence: Sequence
    tokens: list[int]
    chain: list[int]
    salt: int
    adapter: int
    kills_at: int | None = None
    """The length at which its next token takes the group down."""
    num_solo_deaths: int = 0
    """How often in a row the group died with nothing but this request in flight."""
    cleared_at: int = 0
    """The length at which that count begins anew."""
    pause: int = 0
    """Steps since its last row."""
    prompt_logprobs: dict[int, int] = field(default_factory=dict)
    """Of the prompt's tokens, by position."""

    @property
    def needs_prompt_logprobs(self) -> bool:
        return self.sequence.wants_prompt_logprobs and len(self.prompt_logprobs) < self.sequence.prompt_length - 1

    @property
    def mask(self) -> int | None:
        """What a grammar allows next: even tokens or odd ones, by the answer's length. None: it has no grammar."""
        return len(self.tokens) % 2 if self.sequence.has_grammar else None


@dataclass(slots=True)
class Flight:
    """A plan in flight; each row with its client and the blocks that it had when planned."""

    plan: Plan
    rows: list[tuple[Client, Row, tuple[int, ...]]]
    firsts: dict[int, Resident]
