"""A mixture of experts (Shazeer et al. 2017): gated feed-forward networks, of which each token has a few."""

from dataclasses import dataclass

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.checks import FLOATS, check_axes, check_tensor
from penstock.kernels.experts import reference
from penstock.kernels.experts.weights import ExpertWeights

_prepare = dispatch.choose(reference.prepare)
_experts = dispatch.choose(reference.experts)


@dataclass(frozen=True, slots=True)
class Experts(ExpertWeights):
    """The weights of E experts, which the kernels have prepared."""

    def __post_init__(self) -> None:
        """Raises ValueError for weights that do not fit together."""
        self.check()
        object.__setattr__(self, "prepared", _prepare(self))


def experts(x: Tensor, ids: Tensor, weights: Tensor, layer: Experts, partial: bool = False) -> Tensor:
    """Returns the sum over each token's experts of what they make of it, times their weights: [T, N], dtype of x.

    x        [T, C]  float32, bfloat16 or float16
    ids      [T, k]  int32, ascending; the caller makes sure that there are such experts
    weights  [T, k]  float32
    partial  return the float32 sum of these segments, to be added to other ranks'

    Within each segment of the experts' inner widths, float32 products with the weights are added in ascending order of
    the experts; then the segments meet as those of `linear` do. So a token's bits depend on no other token, nor on the
    number of ranks. Raises ValueError for shapes or dtypes that do not fit together.
    """
    op = "experts"
    check_axes(op, "x", x, "T, C")
    check_axes(op, "ids", ids, "T, k")
    check_tensor(op, "x", x, (len(x), layer.gate_up[0].in_features), *FLOATS)
    check_tensor(op, "ids", ids, (len(x), ids.shape[1]), torch.int32)
    check_tensor(op, "weights", weights, ids.shape, torch.float32)
    return _experts(x, ids, weights, layer, torch.float32 if partial else x.dtype)
