"""The gated feed-forward network (SwiGLU, Shazeer 2020) behind its norm, split over the ranks by its inner width."""

from typing import TYPE_CHECKING

from torch import Tensor

from penstock.kernels.mlp_layer import MlpWeights, mlp_layer
from penstock.shard.layers.linear import ColumnParallel, RowParallel
from penstock.shard.models.names import BlockNames
from penstock.shard.weights.rank_weights import RankWeights

if TYPE_CHECKING:
    from penstock.shard.models.config import ModelConfig  # whose families name the layers


class Mlp:
    def __init__(self, config: "ModelConfig", weights: RankWeights, names: BlockNames) -> None:
        hidden, inner = config.hidden_size, config.intermediate_size
        gate_up = ColumnParallel(weights, {names.gate: inner, names.up: inner}, hidden, config.mlp_bias)
        self._down = RowParallel(weights, names.down, inner, hidden, config.mlp_bias)
        norm = weights.whole(f"{names.feed_forward_norm}.weight", hidden)
        self._weights = MlpWeights(
            norm, config.rms_norm_eps, gate_up.weight, gate_up.bias, self._down.weight, self._down.bias)

    def __call__(self, x: Tensor, delta: Tensor | None) -> tuple[Tensor, Tensor]:
        """x + delta, both [T, C], and what the network makes of it, [T, C]."""
        x, out = mlp_layer(self._weights, x, delta, self._down.is_partial)
        return x, self._down.join(out, x.dtype)
