"""The linear layer over coded weights, with the promises of `linear`: a row's bits depend neither on the batch nor on
the number of ranks.

The inputs are cut into *pieces*: at each multiple of the group's size, counted over all ranks, and at the ends of the
segments. With activations in 8 bits (Activations.INT8) each row's piece of x becomes whole numbers from -127 to 127 and
a scale (activations.py says how). The sum over a piece of level(code) * whole number is exact. Then, in float32, with
the piece's scale s of the weight, its minimum m, the scale a of x and the exact sums P = Σ level * x and X = Σ x,

    total = fma(float(P) * a, s, total)                                without minima
    total = fma(fma(float(P), s, float(X) * m), a, total)              with them

in ascending order of the pieces. Segments are added as by `linear`. A table's levels must be whole numbers for this.
With activations as they are (Activations.FLOAT) level(code) is multiplied with x in the arithmetic of the instruction
path, in ascending k, and total = fma(P, s, total), then total = fma(X, m, total), where X is a float32 sum.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.quantised_linear import reference
from penstock.kernels.quantised_linear.activations import Activations
from penstock.kernels.quantised_linear.coded_data import CodedData
from penstock.kernels.quantised_linear.coded_weight import CodedWeight

MOST_ZERO = 255
"""The largest zero of a group."""

_pack = dispatch.choose(reference.pack)
_linear = dispatch.choose(reference.linear)
_linear_apart = dispatch.choose(reference.linear_apart)
_weight_rows = dispatch.choose(reference.weight_rows)


@dataclass(frozen=True, slots=True)
class QuantisedWeight(CodedData):
    """A coded weight."""

    def multiply(self, x: Tensor, bias: Tensor | None, out_dtype: torch.dtype) -> Tensor:
        return _linear(x, self, bias, out_dtype)

    def apart(self, x: Tensor) -> Tensor:
        return _linear_apart(x, self)

    def rows(self, ids: Tensor) -> Tensor:
        return _weight_rows(self, ids)


def pack_coded(coded: CodedWeight, segments: int, activations: Activations, dtype: torch.dtype) -> QuantisedWeight:
    """Prepares a coded weight once, when it is loaded; `dtype` is that of the model's activations.

    K is cut into `segments` equal segments, as by `pack`. Raises ValueError if K cannot be cut so, for zeros above 255,
    and for levels that are not whole numbers, at most 255 apart, where activations are.
    """
    shape = [coded.out_features, coded.in_features]
    if segments < 1 or segments & (segments - 1):
        raise ValueError(f"pack_coded: {segments} segments is no power of two")
    if coded.in_features % segments:
        raise ValueError(f"pack_coded: weight {shape}: {segments} segments do not divide K = {coded.in_features}")
    if coded.zeros is not None and coded.zeros.numel() and not 0 <= coded.zeros.min() <= coded.zeros.max() <= MOST_ZERO:
        raise ValueError(f"pack_coded: weight {shape}: zeros from {coded.zeros.min()} to {coded.zeros.max()}, expected "
                         f"from 0 to {MOST_ZERO}")
    if activations is Activations.INT8 and coded.table is not None and not _is_whole(coded.table):
        raise ValueError(f"pack_coded: weight {shape}: its table has levels that are no whole numbers or more than 255 "
                         f"apart; they can be multiplied with activations as they are alone ({Activations.FLOAT})")
    data = _pack(coded, segments, activations)
    return QuantisedWeight(coded.out_features, coded.in_features, segments, dtype, data, activations)


def _is_whole(table: Tensor) -> bool:
    return torch.equal(table, table.trunc()) and bool(table.max() - table.min() <= MOST_ZERO)
