"""The feed-forward half of a block, op by op."""

from typing import TYPE_CHECKING

from torch import Tensor

from penstock.kernels.linear import linear
from penstock.kernels.rms_norm import rms_norm
from penstock.kernels.silu_mul import silu_mul

if TYPE_CHECKING:
    from penstock.kernels.mlp_layer import MlpWeights


def prepare(weights: "MlpWeights") -> None:
    """There is nothing to prepare."""


def mlp_layer(weights: "MlpWeights", x: Tensor, delta: Tensor | None, partial: bool) -> tuple[Tensor, Tensor]:
    w = weights
    normed, total = rms_norm(x, w.norm, w.eps, delta)
    gated = silu_mul(linear(normed, w.gate_up, w.gate_up_bias))
    return total, linear(gated, w.down, None if partial else w.down_bias, partial=partial)
