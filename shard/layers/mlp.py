"""The gated feed-forward network (SwiGLU, Shazeer 2020)."""

from torch import Tensor

from kernels.silu_mul import silu_mul
from shard.layers.linear import ColumnParallel, RowParallel
from shard.models.config import ModelConfig
from shard.weights import RankWeights


class Mlp:
    def __init__(self, config: ModelConfig, weights: RankWeights, name: str) -> None:
        hidden, inner = config.hidden_size, config.intermediate_size
        outputs = {f"{name}.gate_proj": inner, f"{name}.up_proj": inner}
        self._gate_up = ColumnParallel(weights, outputs, hidden, config.mlp_bias)
        self._down = RowParallel(weights, f"{name}.down_proj", inner, hidden, config.mlp_bias)

    def __call__(self, x: Tensor) -> Tensor:
        """x [T, C]: [T, C]."""
        return self._down(silu_mul(self._gate_up(x)))
