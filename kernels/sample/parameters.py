"""Defines how the rows of a step are sampled, and what comes of it.

`RowParameters` is the one table of the sampling parameters. The columns in which a shard keeps them, the tensors of
`SampleParameters`, their pointers in Python's image of csrc/structures.h's SampleBatch and what the wire refuses all
follow from its fields; a test holds that file itself to them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from penstock.kernels.top_logprobs import TopLogprobs


@dataclass(frozen=True, slots=True)
class Bound:
    """Says which values a parameter may have, in words and as a test."""

    text: str
    holds: Callable[[float], bool]


ABOVE_0 = Bound("above 0", lambda value: value > 0)
FINITE = Bound("finite", isfinite)
SHARE = Bound("between 0 and 1", lambda value: 0 <= value <= 1)


def _parameter(dtype: torch.dtype, *, off: float, on: float, bound: Bound | None = None) -> Any:
    """Makes a field of the table. `on` is a value that changes what is sampled, and costs what the parameter costs."""
    return field(default=off, metadata={"dtype": dtype, "on": on, "bound": bound})


@dataclass(frozen=True, slots=True)
class RowParameters:
    """Says how one row is sampled, in the order in which it is applied. The defaults are off: the likeliest token."""

    of_logprobs: bool = _parameter(torch.bool, off=False, on=True)
    """Penalties, biases and the mask act on log-probabilities, which nothing normalises again: they are what is
    reported, as the scores of a beam search are. A row that is drawn by noise does not heed it."""
    repetition_penalty: float = _parameter(torch.float32, off=1.0, on=1.2, bound=ABOVE_0)
    """Divides the positive scores of all tokens so far and multiplies the negative ones."""
    share_penalty: float = _parameter(torch.float32, off=0.0, on=0.1, bound=FINITE)
    """Is taken from a token's score, times its share of all tokens so far."""
    frequency_penalty: float = _parameter(torch.float32, off=0.0, on=0.1, bound=FINITE)
    """Is taken from a token's score for each time that it is in the output."""
    presence_penalty: float = _parameter(torch.float32, off=0.0, on=0.1, bound=FINITE)
    """Is taken from the score of a token that is in the output."""
    do_sample: bool = _parameter(torch.bool, off=False, on=True)
    """False takes the likeliest token, and nothing that follows counts but `top_n`."""
    temperature: float = _parameter(torch.float32, off=1.0, on=0.7, bound=ABOVE_0)
    top_k: int = _parameter(torch.int64, off=0, on=50)
    top_p: float = _parameter(torch.float32, off=1.0, on=0.9, bound=ABOVE_0)
    typical_p: float = _parameter(torch.float32, off=1.0, on=0.9, bound=ABOVE_0)
    min_p: float = _parameter(torch.float32, off=0.0, on=0.01, bound=SHARE)
    seed: int = _parameter(torch.uint64, off=0, on=1)
    branch: int = _parameter(torch.int64, off=0, on=1)
    """Below 2³²: it tells several answers to one prompt apart, which share a seed."""
    top_n: int = _parameter(torch.int64, off=0, on=5)
    """How many top logprobs to report."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """Describes one field of `RowParameters`."""

    name: str
    dtype: torch.dtype
    off: Any
    on: Any
    bound: Bound | None

    @property
    def column_dtype(self) -> torch.dtype:
        """Returns the dtype of its tensor in `SampleParameters`: a uint64 goes as the bits of an int64."""
        return torch.int64 if self.dtype == torch.uint64 else self.dtype


PARAMETERS = tuple(Parameter(each.name, off=each.default, **each.metadata) for each in fields(RowParameters))
COLUMNS: Mapping[str, torch.dtype] = {
    "prompt_length": torch.int64,        # so many ids of the history are the prompt, the rest is the output
    "mask": torch.int64,                 # an index into the masks; -1 is none
    "position": torch.int64,             # below 2³²: how many tokens of the output come before this one
    **{parameter.name: parameter.column_dtype for parameter in PARAMETERS},
}
"""The columns of `SampleParameters`: those that change with each token, and then the parameters."""


CUTOFFS: Mapping[str, Callable[[Any], Any]] = {
    "top_k": lambda column: column > 0, "top_p": lambda column: column < 1, "typical_p": lambda column: column < 1,
    "min_p": lambda column: column > 0}


def find_passes(columns: Mapping[str, Any]) -> frozenset[str]:
    """Returns which of the parameters that take passes of their own over the scores some row has: the cutoffs and
    `of_logprobs`. Columns are tensors or arrays."""
    found = [name for name, is_on in CUTOFFS.items() if (is_on(columns[name]) & columns["do_sample"]).any()]
    return frozenset([*found, "of_logprobs"] if columns["of_logprobs"].any() else found)


@dataclass(init=False, eq=False, slots=True)
class SampleParameters:
    """Says how each of R rows is sampled: a tensor [R] for each of COLUMNS, which is an attribute by its name.

    `passes` are those that some row has. Who knows them says so, for to look one has to wait if the columns are on a
    GPU.
    """

    columns: Mapping[str, Tensor]
    _passes: frozenset[str] | None

    def __init__(self, passes: frozenset[str] | None = None, /, **columns: Tensor) -> None:
        if columns.keys() != COLUMNS.keys():
            raise TypeError(f"sample: the columns are {sorted(COLUMNS)}, not {sorted(columns)}")
        self.columns = columns
        self._passes = passes

    @property
    def passes(self) -> frozenset[str]:
        if self._passes is None:
            self._passes = find_passes(self.columns)
        return self._passes

    def __getattr__(self, name: str) -> Tensor:
        if name not in COLUMNS:
            raise AttributeError(f"SampleParameters have no column {name}")
        return self.columns[name]


@dataclass(frozen=True, slots=True)
class History:
    """Holds all tokens before the sampled one, row after row; rows without penalties need none."""

    ids: Tensor  # int64 [total]
    offsets: Tensor  # int64 [R + 1]: row r has those from offsets[r] to offsets[r + 1]


@dataclass(frozen=True, slots=True)
class Biases:
    """Holds the numbers that are added to the scores of some tokens, row after row."""

    ids: Tensor  # int64 [total]
    values: Tensor  # float32 [total]; -inf bans the token
    offsets: Tensor  # int64 [R + 1]


@dataclass(frozen=True, slots=True)
class Sampled:
    """Holds the chosen token of each of R rows."""

    ids: Tensor  # int64 [R]
    logprobs: Tensor  # float32 [R]
    top_logprobs: TopLogprobs  # of what else might have been
