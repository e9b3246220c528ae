"""The gated feed-forward network (SwiGLU, Shazeer 2020) behind its norm, split over the ranks by its inner width."""

from torch import Tensor

from penstock.kernels.rms_norm import rms_norm
from penstock.kernels.silu_mul import silu_mul
from penstock.shard.layers.linear import ColumnParallel, RowParallel
from penstock.shard.models.config import ModelConfig
from penstock.shard.weights.checkpoint import RankWeights


class Mlp:
    def __init__(self, config: ModelConfig, weights: RankWeights, name: str, norm: Tensor) -> None:
        hidden, inner = config.hidden_size, config.intermediate_size
        outputs = {f"{name}.gate_proj": inner, f"{name}.up_proj": inner}
        self.norm = norm
        self.eps = config.rms_norm_eps
        self.gate_up = ColumnParallel(weights, outputs, hidden, config.mlp_bias)
        self.down = RowParallel(weights, f"{name}.down_proj", inner, hidden, config.mlp_bias)

    def __call__(self, x: Tensor, delta: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns x + delta, both [T, C], and what the network makes of it, [T, C]."""
        normed, x = rms_norm(x, self.norm, self.eps, delta)
        return x, self.down(silu_mul(self.gate_up(normed)))
