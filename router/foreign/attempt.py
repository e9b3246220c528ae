"""The outcome of a question to a server elsewhere."""

import time
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.router.foreign.told_tokens import NONE, ToldTokens


class Outcome(StrEnum):
    ANSWERED = "answered"
    REFUSED = "refused"
    """The answer is that the request is wrong."""
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    """No answer has begun in time."""
    OVERLOADED = "overloaded"
    UNAUTHORIZED = "unauthorized"
    """The server takes no requests of this one, whoever its client is."""
    FAILED = "failed"
    BROKEN = "broken"
    """The answer had begun, and did not come to its end."""
    LEFT = "left"
    """The client has left before the answer's end."""


@dataclass(slots=True)
class Attempt:
    """A question to one server of a model. Times are of `time.monotonic`."""

    model: str
    source: str
    outcome: Outcome = Outcome.LEFT
    began_at: float = field(default_factory=time.monotonic)
    ended_at: float = 0.0
    is_counted: bool = False
    """Whether an answer has begun that counts as use."""
    tokens: ToldTokens = NONE
    """Those of which the answer has told."""

    def end(self, outcome: Outcome) -> None:
        """Notes its outcome, now."""
        self.outcome, self.ended_at = outcome, time.monotonic()
