"""The gated feed-forward network (SwiGLU, Shazeer 2020) behind its norm, split over the ranks by its inner width."""

from typing import TYPE_CHECKING

from torch import Tensor

from penstock.kernels.rms_norm import rms_norm
from penstock.kernels.silu_mul import silu_mul
from penstock.shard.layers.linear import ColumnParallel, RowParallel
from penstock.shard.models.names import BlockNames
from penstock.shard.weights.rank_weights import RankWeights

if TYPE_CHECKING:
    from penstock.shard.models.config import ModelConfig  # whose families name the layers


class Mlp:
    def __init__(self, config: "ModelConfig", weights: RankWeights, names: BlockNames) -> None:
        hidden, inner = config.hidden_size, config.intermediate_size
        self.norm = weights.whole(f"{names.feed_forward_norm}.weight", hidden)
        self.eps = config.rms_norm_eps
        self.gate_up = ColumnParallel(weights, {names.gate: inner, names.up: inner}, hidden, config.mlp_bias)
        self.down = RowParallel(weights, names.down, inner, hidden, config.mlp_bias)

    def __call__(self, x: Tensor, delta: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns x + delta, both [T, C], and what the network makes of it, [T, C]."""
        normed, x = rms_norm(x, self.norm, self.eps, delta)
        return x, self.down(silu_mul(self.gate_up(normed)))
