"""Measurements of requests, and the figures that follow: latencies, percentiles, rates, goodput."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

PERCENTILES = (50, 75, 90, 99)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request has no whole answer: a few words that failures are grouped by, and the details of this one."""

    kind: str
    details: str = ""


@dataclass(frozen=True, slots=True)
class Measurement:
    """The measurement of one request; times in seconds, of one clock.

    `times` are those of the events that brought output, none if the answer came in one piece. `counted_by` says who
    counted `num_tokens`: the "server", or this side, which takes each of its "events" or "chunks" for one token.
    """

    start: float
    end: float
    times: tuple[float, ...] = ()
    num_tokens: int = 0
    prompt_tokens: int | None = None
    counted_by: str = "server"
    failure: Failure | None = None

    @property
    def first(self) -> float | None:
        """The time to the first token; None if the answer was not streamed."""
        return self.times[0] - self.start if self.times else None

    @property
    def gaps(self) -> list[float]:
        """The times between events, each of which may have brought several tokens."""
        return [later - earlier for earlier, later in itertools.pairwise(self.times)]

    @property
    def per_token(self) -> float | None:
        """The time per token behind the first; None if there was none or the answer was not streamed."""
        if not self.times or self.num_tokens < 2:
            return None
        return (self.times[-1] - self.times[0]) / (self.num_tokens - 1)

    @property
    def duration(self) -> float:
        return self.end - self.start

    def meets(self, limits: Mapping[str, float]) -> bool:
        """Tells whether the request was answered within all limits, in milliseconds by the names in METRICS.

        Every gap between events must be within the limit of `itl`. An answer of one token meets limits of gaps, which
        it does not have."""
        if self.failure:
            return False
        return all(1e3 * value <= limit for name, limit in limits.items() for value in METRICS[name](self))


def _present(value: float | None) -> list[float]:
    return [] if value is None else [value]


METRICS: dict[str, Callable[[Measurement], list[float]]] = {
    "ttft": lambda measurement: _present(measurement.first),
    "itl": lambda measurement: measurement.gaps,
    "tpot": lambda measurement: _present(measurement.per_token),
    "e2e": lambda measurement: [measurement.duration],
}
"""The times in seconds that a measurement gives, by the name that the field has for them."""
TITLES = {"ttft": "time to first token", "itl": "inter-token latency", "tpot": "time per output token",
          "e2e": "end to end"}
STREAMED = {"ttft", "itl", "tpot"}
"""The metrics that only a streamed answer has."""


def percentile(values: Sequence[float], percent: float) -> float:
    """Returns the value below which `percent` of the values lie, between two in proportion; NaN if there are none."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many tokens a prompt has, and its answer."""

    prompt: int
    output: int

    def __str__(self) -> str:
        return f"{self.prompt} → {self.output}"


@dataclass
class Run:
    """The requests that were sent at one pace. `pace` is its name: "concurrency" or "rate", `level` its value. A
    scenario's run has the lengths that it asked for."""

    pace: str
    level: float
    measurements: list[Measurement] = field(default_factory=list)
    duration: float = 0.0
    is_interrupted: bool = False
    lengths: Lengths | None = None

    @property
    def answered(self) -> list[Measurement]:
        return [measurement for measurement in self.measurements if not measurement.failure]

    @property
    def failures(self) -> list[Failure]:
        return [measurement.failure for measurement in self.measurements if measurement.failure]

    @property
    def num_tokens(self) -> int:
        """The output tokens of whole answers."""
        return sum(measurement.num_tokens for measurement in self.answered)

    @property
    def prompt_lengths(self) -> set[int]:
        """How many tokens the prompts have, as the server counts them."""
        return {one.prompt_tokens for one in self.answered if one.prompt_tokens is not None}

    @property
    def tokens_per_second(self) -> float:
        return self.num_tokens / self.duration if self.duration else 0.0

    @property
    def requests_per_second(self) -> float:
        return len(self.answered) / self.duration if self.duration else 0.0

    def values(self, metric: str) -> list[float]:
        """Returns one of METRICS, in milliseconds, of all whole answers."""
        return [1e3 * value for measurement in self.answered for value in METRICS[metric](measurement)]

    def percentile(self, metric: str, percent: float) -> float:
        return percentile(self.values(metric), percent)

    def goodput(self, limits: Mapping[str, float]) -> float:
        """Returns how many requests per second were answered within the limits."""
        return sum(one.meets(limits) for one in self.measurements) / self.duration if self.duration else 0.0


def statistics(values: Sequence[float]) -> dict[str, float] | None:
    """Returns the mean and PERCENTILES, or None if there are no values."""
    if not values:
        return None
    found = {f"p{percent}": percentile(values, percent) for percent in PERCENTILES}
    return {"mean": sum(values) / len(values), **found}


def counted_by(measurements: Iterable[Measurement]) -> str:
    """Returns who counted the tokens of most answers; "nothing" if there is no answer."""
    counts = Counter(measurement.counted_by for measurement in measurements)
    return counts.most_common(1)[0][0] if counts else "nothing"


def group_failures(failures: Iterable[Failure]) -> dict[str, list[str]]:
    """Returns the details of failures by their kind, the most frequent kind first."""
    groups: dict[str, list[str]] = {}
    for failure in failures:
        groups.setdefault(failure.kind, []).append(failure.details)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))
