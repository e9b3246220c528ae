"""The figures of policies of batching, and their table."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Run:
    """The figures of one policy in one round."""

    slots: int
    requests: int
    tokens: int
    seconds: float
    first_token_seconds: float           # on average, from when a request came
    answer_seconds: float
    empty_of_blocks: float               # the share of the memory that sequences held and did not use
    empty_of_contiguous: float           # and of what contiguous memory would have held for them

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


Runs = Mapping[str, list[Run]]
"""By policy, one for each round and number of slots."""


def table(runs: Runs) -> Iterator[list[str]]:
    """Yields a head, and a row for each policy and number of slots, with medians over the rounds."""
    yield ["policy, slots", "tokens/s", "÷ the first", "first token, s", "answer, s", "of blocks empty",
           "of contiguous memory empty"]
    first, *_ = runs.values()
    for num_slots in dict.fromkeys(run.slots for run in first):
        base = [run for run in first if run.slots == num_slots]
        for policy, every in runs.items():
            own = [run for run in every if run.slots == num_slots]
            ratio = median(run.rate / other.rate for run, other in zip(own, base, strict=True))
            yield [f"{policy}, {num_slots}", f"{median(run.rate for run in own):.1f}", f"{ratio:.2f}",
                   f"{median(run.first_token_seconds for run in own):.2f}",
                   f"{median(run.answer_seconds for run in own):.2f}",
                   f"{median(run.empty_of_blocks for run in own):.1%}",
                   f"{median(run.empty_of_contiguous for run in own):.1%}"]


def to_json(runs: Runs) -> dict[str, list[dict[str, float]]]:
    return {policy: [asdict(run) for run in own] for policy, own in runs.items()}


def from_json(figures: Mapping[str, list[Mapping[str, Any]]]) -> Runs:
    return {policy: [Run(**run) for run in own] for policy, own in figures.items()}
