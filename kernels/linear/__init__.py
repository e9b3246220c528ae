"""The linear layer, with a sum over the inputs whose order never depends on the batch or on the number of ranks."""

from dataclasses import dataclass

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.checks import FLOATS, check_axes, check_tensor
from penstock.kernels.linear import reference
from penstock.kernels.linear.packed_weight import DenseData, PackedWeight

__all__ = ["DenseWeight", "PackedWeight", "linear", "linear_apart", "pack", "weight_rows"]

_pack = dispatch.choose(reference.pack)
_linear = dispatch.choose(reference.linear)
_linear_apart = dispatch.choose(reference.linear_apart)
_weight_rows = dispatch.choose(reference.weight_rows)


@dataclass(frozen=True, slots=True)
class DenseWeight(DenseData):
    """A weight whose numbers are all stored."""

    def multiply(self, x: Tensor, bias: Tensor | None, out_dtype: torch.dtype) -> Tensor:
        return _linear(x, self, bias, out_dtype)

    def apart(self, x: Tensor) -> Tensor:
        return _linear_apart(x, self)

    def rows(self, ids: Tensor) -> Tensor:
        return _weight_rows(self, ids)


def pack(weight: Tensor, segments: int = 1) -> DenseWeight:
    """Prepares a dense weight [N, K] (float32, bfloat16 or float16) once, when it is loaded.

    K is cut into `segments` equal segments, a power of two, that are summed apart and added in a binary tree. A rank
    that owns half of K packs its half with half the segments. Raises ValueError if K cannot be cut so.
    """
    check_axes("pack", "weight", weight, "N, K")
    check_tensor("pack", "weight", weight, weight.shape, *FLOATS)
    out_features, in_features = weight.shape
    if segments < 1 or segments & (segments - 1):
        raise ValueError(f"pack: {segments} segments is no power of two")
    if in_features % segments:
        raise ValueError(f"pack: weight {list(weight.shape)}: {segments} segments do not divide K = {in_features}")
    data = _pack(weight, segments)
    return DenseWeight(out_features, in_features, segments, weight.dtype, data)


def linear(
    x: Tensor,
    packed: PackedWeight,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    partial: bool = False,
    delta: Tensor | None = None,
) -> Tensor:
    """Multiplies x [T, K] by the transposed weight [N, K]: [T, N].

    x          float32, bfloat16 or float16
    bias       [N], the same dtypes; added once, after the segments
    out_dtype  of the result; the dtype of x if None
    partial    return the float32 sum of this weight's segments, without bias, to be added to other ranks' sums
    delta      float32 [T, N], added to the float32 sum before the bias; -0 changes no bit of the result

    One segment: the sum and the bias are rounded once, to out_dtype. More: each segment's sum is rounded to float32
    and they are added in float32 as ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)), then the bias, then the rounding to
    out_dtype. So partial sums of a weight cut in two, packed with half the segments each, add up to the whole bit for
    bit. Raises ValueError for shapes or dtypes that do not fit together.
    """
    op = "linear"
    check_axes(op, "x", x, "T, K")
    check_tensor(op, "x", x, (x.shape[0], packed.in_features), *FLOATS)
    if bias is not None:
        check_tensor(op, "bias", bias, (packed.out_features,), *FLOATS)
    if partial and (bias is not None or out_dtype not in (None, torch.float32)):
        raise ValueError(f"{op}: a partial sum is float32 and has no bias (out_dtype {out_dtype})")
    if delta is not None:
        check_tensor(op, "delta", delta, (x.shape[0], packed.out_features), torch.float32)
        return _with_delta(x, packed, bias, torch.float32 if partial else out_dtype or x.dtype, delta)
    return packed.multiply(x, bias, torch.float32 if partial else out_dtype or x.dtype)


def _with_delta(
    x: Tensor, packed: PackedWeight, bias: Tensor | None, out_dtype: torch.dtype, delta: Tensor
) -> Tensor:
    total = packed.multiply(x, None, torch.float32) + delta
    if bias is not None:
        total = total + bias.float()
    if dispatch.kernel_set() != "reference":
        return total.to(out_dtype)
    # Its sums are float64, and rounded once where nothing is added to them.
    return torch.where((delta == 0) & delta.signbit(), packed.multiply(x, bias, out_dtype), total.to(out_dtype))


def linear_apart(x: Tensor, packed: PackedWeight) -> Tensor:
    """Returns the sums of each of the weight's S segments by itself: float32 [S, T, N] of x [T, K].

    `linear` adds them as its tree does; whoever has more to add to each segment does so before. Raises ValueError for
    shapes or dtypes that do not fit together.
    """
    check_axes("linear_apart", "x", x, "T, K")
    check_tensor("linear_apart", "x", x, (x.shape[0], packed.in_features), *FLOATS)
    return packed.apart(x)


def weight_rows(packed: PackedWeight, ids: Tensor) -> Tensor:
    """Returns rows of a packed weight as they were before it was packed: [R, K] in its dtype, the same bits.

    ids  int64 [R], each from 0 to N - 1, which the caller makes sure of

    An embedding reads its rows here, so that a weight which is also the head's is held once. Raises ValueError for a
    weight of several segments.
    """
    op = "weight_rows"
    check_tensor(op, "ids", ids, (ids.numel(),), torch.int64)
    if packed.segments != 1:
        shape = [packed.out_features, packed.in_features]
        raise ValueError(f"{op}: the weight {shape} is packed in {packed.segments} segments, expected 1")
    return packed.rows(ids)
