"""What happened, when, and what of it may have cost a client its answer."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from tests.faults.schedule import Event, Loses

ACCEPT_SECONDS = 1.0
"""How long before a launcher's death a client may have come whom nobody had time to accept."""

SHORTEST_SILENCE = 0.2


@dataclass(slots=True)
class Strike:
    """A fault as it came. Times are of `time.monotonic`."""

    event: Event
    began_at: float
    struck_at: float | None = None
    """When the damage was done: who came later, came to a server that was already hurt."""
    over_at: float | None = None
    """When the server was ready again."""
    log_begin: int = 0
    log_end: int = 0
    """The part of the server's log that was written meanwhile, in bytes."""

    def includes(self, begin: float, end: float) -> bool:
        """Tells whether it lasted at a time between these."""
        return self.seconds_of(begin, end) >= 0

    def seconds_of(self, begin: float, end: float) -> float:
        """Returns for how many of the seconds between these times it lasted; less than 0 if it was at other times."""
        return min(end, self.over_at or float("inf")) - max(begin, self.began_at)


@dataclass(frozen=True, slots=True)
class Loss:
    """An attempt of a client's to which no answer came; `had_bytes` tells whether a part of one did."""

    began_at: float
    ended_at: float
    what: str
    had_bytes: bool
    is_connection: bool
    """Whether the connection was refused or cut. If not, the server said what was wrong, or nothing for too long."""
    times: tuple[float, ...] = ()
    """When parts of it came."""


@dataclass(slots=True)
class Ledger:
    """Keeps the faults, what clients lost by them, their silences, and what probes were told."""

    strikes: list[Strike] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    silences: list[tuple[float, float]] = field(default_factory=list)
    """The begin and the end of each time for which a stream had nothing, the wait for its first event as well."""
    probes: list[tuple[float, str, int | None]] = field(default_factory=list)
    """When, which of the health routes, and its status; None if there was no answer."""
    answers: list[tuple[float, float, str]] = field(default_factory=list)
    """The begin and the end of each request that was answered right, and its kind."""

    def begin(self, event: Event) -> Strike:
        strike = Strike(event, time.monotonic())
        self.strikes.append(strike)
        return strike

    def permits(self, loss: Loss) -> bool:
        """Tells whether a fault of that time takes such answers by design."""
        return loss.is_connection and any(_permits(strike, loss) for strike in self.strikes)

    def silent(self, times: Iterable[float]) -> None:
        """Notes that a stream had nothing between each of these times and the next."""
        self.silences.extend((begin, end) for begin, end in pairwise(times) if end - begin >= SHORTEST_SILENCE)

    def longest_silence(self, strike: Strike) -> float:
        """Returns the seconds of the longest silence of a stream that is due to the fault more than to another."""
        return max((end - begin for begin, end in self.silences if strike.includes(begin, end) and strike is max(
            self.strikes, key=lambda other: other.seconds_of(begin, end))), default=0.0)


def _permits(strike: Strike, loss: Loss) -> bool:
    struck_at, over_at = strike.struck_at or float("inf"), strike.over_at or float("inf")
    if strike.event.kind.loses is Loses.ACCEPTED:
        return strike.began_at <= loss.ended_at and loss.began_at <= struck_at
    if strike.event.kind.loses is Loses.NEW:
        is_new = strike.began_at - ACCEPT_SECONDS <= loss.began_at <= over_at
        return is_new and strike.began_at <= loss.ended_at and not loss.had_bytes
    return False
