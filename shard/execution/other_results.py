"""Results that are neither tokens nor logprobs: each kind has a maker."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from torch import Tensor

from penstock.contract.row import Row
from penstock.contract.row_result import OtherResult
from penstock.shard.execution.batch import StepInputs
from penstock.shard.execution.slots import SlotTable
from penstock.shard.models.model import Hidden


@dataclass(frozen=True, slots=True)
class Computed:
    """Holds all that a step has computed before it samples. The `inputs` of its rows come before those of padding."""

    rows: tuple[Row, ...]
    slots: SlotTable
    inputs: StepInputs
    hidden: Hidden | None                # None before the last stage, and in a captured step of decode rows
    logits: Tensor | None                # float32 [sampled rows, V] on the rank that answers, None elsewhere


class Making(NamedTuple):
    """Stands for results on their way: `read` makes them of the tensors once these are on the host, by slot."""

    tensors: list[Tensor]
    read: Callable[[Sequence[Tensor]], Mapping[int, bytes]]


MAKERS: dict[str, Callable[[Computed], Making | None]] = {}
"""For each kind the function that makes its results. Every rank calls it alike, for every step; it returns None where
no row wants any, as side inputs in the rows' slots may tell."""


def launch(computed: Computed) -> dict[str, Making]:
    """Sends the device the work for all kinds that are wanted."""
    return {kind: making for kind, make in MAKERS.items() if (making := make(computed)) is not None}


def read(launched: Mapping[str, Making], tensors: Iterator[Tensor]) -> dict[int, tuple[OtherResult, ...]]:
    """Returns the results by slot, from the tensors of all kinds, one after the other, which are on the host now."""
    results: dict[int, tuple[OtherResult, ...]] = {}
    for kind, making in launched.items():
        for slot, value in making.read([*islice(tensors, len(making.tensors))]).items():
            results[slot] = (*results.get(slot, ()), OtherResult(kind, value))
    return results
