"""The feed-forward network, with a gate (SwiGLU, Shazeer 2020) or without, split over the ranks by its inner width."""

from torch import Tensor

from penstock.kernels.activation import activate, activate_gate
from penstock.kernels.lora import AdapterRows
from penstock.shard.layers.linear import ColumnParallel, RowParallel
from penstock.shard.models.config import ModelConfig
from penstock.shard.models.names import BlockNames
from penstock.shard.weights.format import LinearPart
from penstock.shard.weights.rank_weights import RankWeights


class Mlp:
    """Transforms each token by itself."""

    def __init__(self, config: ModelConfig, weights: RankWeights, names: BlockNames) -> None:
        mlp, hidden = config.mlp, config.hidden_size
        self.activation = mlp.activation
        self.is_gated = mlp.is_gated
        self.gate_up = ColumnParallel(weights, _inner_parts(config, names, weights), mlp.has_bias,
                                      takes_adapters=True)
        self.down = RowParallel(weights, names.down, mlp.inner_size, hidden, mlp.has_bias, config.place,
                                takes_adapters=True)

    def __call__(self, x: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        """Returns the network's output for each token of x [T, C], [T, C]."""
        inner = self.gate_up(x, adapters)
        return self.down((activate_gate if self.is_gated else activate)(inner, self.activation), adapters)


def _inner_parts(config: ModelConfig, names: BlockNames, weights: RankWeights) -> list[tuple[str, LinearPart]]:
    """Returns a rank's parts of the linears whose outputs are the inner ones: gate and up, or up alone."""
    mlp, hidden = config.mlp, config.hidden_size
    if mlp.is_stacked:
        return weights.own_halves(names.gate_up, mlp.inner_size, hidden, config.place)
    linears = (names.gate, names.up) if mlp.is_gated else (names.up,)
    return weights.own_outputs(dict.fromkeys(linears, mlp.inner_size), hidden, config.place)
