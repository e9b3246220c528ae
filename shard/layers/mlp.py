"""The gated feed-forward network (SwiGLU, Shazeer 2020) behind its norm, split over the ranks by its inner width."""

from torch import Tensor

from penstock.kernels.mlp_layer import MlpWeights, mlp_layer
from penstock.shard.layers.linear import ColumnParallel, RowParallel
from penstock.shard.models.config import ModelConfig
from penstock.shard.weights.checkpoint import RankWeights


class Mlp:
    def __init__(self, config: ModelConfig, weights: RankWeights, name: str, norm: Tensor) -> None:
        hidden, inner = config.hidden_size, config.intermediate_size
        outputs = {f"{name}.gate_proj": inner, f"{name}.up_proj": inner}
        gate_up = ColumnParallel(weights, outputs, hidden, config.mlp_bias)
        self._down = RowParallel(weights, f"{name}.down_proj", inner, hidden, config.mlp_bias)
        self._weights = MlpWeights(
            norm, config.rms_norm_eps, gate_up.weight, gate_up.bias, self._down.weight, self._down.bias)

    def __call__(self, x: Tensor, delta: Tensor | None) -> tuple[Tensor, Tensor]:
        """x + delta, both [T, C], and what the network makes of it, [T, C]."""
        x, out = mlp_layer(self._weights, x, delta, self._down.is_partial)
        return x, self._down.join(out, x.dtype)
