"""How long a step takes: by the roofline of an accelerator, or by a fit to measured ones."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from penstock.bench.planning.machines import Accelerator
from penstock.bench.planning.model_size import ModelSize
from penstock.contract.output import Output
from penstock.contract.row import Row

REACH = 0.65
"""The share of an accelerator's peaks that steps reach: of an H200's, 0.67 of the bandwidth in decode steps of 1 to 128
sequences of 8 billion parameters, and 0.63 of the operations in prompts (bench/results/gpu-h200.json)."""


@dataclass(frozen=True)
class StepWork:
    """Counts the work of a step, or of several on average: the tokens of its rows, the rows whose tokens are sampled,
    the keys and values that are read, in tokens, and the pairs of tokens of which one sees the other."""

    tokens: float
    samples: float
    read: float
    pairs: float

    def __add__(self, other: "StepWork") -> "StepWork":
        return StepWork(self.tokens + other.tokens, self.samples + other.samples, self.read + other.read,
                        self.pairs + other.pairs)

    def __rmul__(self, times: float) -> "StepWork":
        return StepWork(times * self.tokens, times * self.samples, times * self.read, times * self.pairs)


def work_of(rows: Iterable[Row]) -> StepWork:
    """Returns the work of a step's rows."""
    tokens = samples = read = pairs = 0
    for row in rows:
        count = row.num_inputs
        tokens += count
        samples += row.output is Output.SAMPLE
        read += row.start + count
        pairs += count * row.start + count * (count + 1) // 2
    return StepWork(tokens, samples, read, pairs)


def decode_work(sequences: int, length: int) -> StepWork:
    """Returns the work of a step in which so many sequences of a length get a token each."""
    return StepWork(sequences, sequences, sequences * length, sequences * length)


def prompt_work(length: int) -> StepWork:
    """Returns the work of a step that computes one prompt."""
    return StepWork(length, 1, length, length * (length + 1) // 2)


class StepCost(Protocol):
    """Tells how long steps take, and how long the router has a request before it may run."""

    @property
    def request_seconds(self) -> float: ...

    def seconds(self, work: StepWork) -> float: ...


@dataclass(frozen=True)
class Roofline:
    """Steps that wait for memory or for arithmetic, whichever takes longer, at a share of the accelerator's peaks. What
    the shards of a group say to each other is not in it."""

    size: ModelSize
    accelerator: Accelerator
    num_shards: int
    reach: float = REACH
    request_seconds: float = 0.0

    def seconds(self, work: StepWork) -> float:
        size = self.size
        moved = size.step_bytes(work.tokens) / self.num_shards + work.read * size.kv_bytes(self.num_shards)
        operations = (work.tokens * size.token_operations + work.pairs * size.pair_operations) / self.num_shards
        return max(moved / (1e9 * self.accelerator.bandwidth),
                   operations / (1e12 * self.accelerator.operations)) / self.reach


@dataclass(frozen=True)
class Measured:
    """Steps whose time is a sum: of one time for each step, and of times for each of its parts. `token` is of those
    tokens that yield none themselves."""

    step: float
    sample: float
    token: float
    read: float
    pair: float
    request_seconds: float

    def seconds(self, work: StepWork) -> float:
        return (self.step + self.sample * work.samples + self.token * (work.tokens - work.samples)
                + self.read * work.read + self.pair * work.pairs)
