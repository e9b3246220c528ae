"""A request on its way to an engine."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.router.engine.beams import CarriedBeams
from penstock.router.engine.receiver import Receiver
from penstock.router.scheduling.death_record import DeathRecord


@dataclass(frozen=True, slots=True)
class Transfer:
    """Holds all that an engine needs to run a request: a new one, or one that another engine has run to here.

    `age` is the request's arrival number, by which older ones come first, in whichever group. Of the answer the
    receiver has `output` already. `record` says what the request is suspected of, and `left_at`, of `time.monotonic`,
    since when no engine has run it; None for a new one.
    """

    receiver: Receiver
    output: Sequence[int]
    age: int
    record: DeathRecord = field(default_factory=DeathRecord)
    left_at: float | None = None
    beams: CarriedBeams | None = None
    """How far its beam search is, if it has one and another engine has run it."""

    @property
    def num_tokens(self) -> int:
        """How many tokens the answer has already, or each of the beams."""
        return len(self.output) if self.beams is None else self.beams.search.length
