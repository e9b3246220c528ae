"""The layers behind a pooling, whose weights every rank has whole, and which compute in float32."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from penstock.checkpoints.sentence_modules import DenseModule, Layer
from penstock.kernels.layer_norm import layer_norm
from penstock.kernels.linear import PackedWeight, linear, pack
from penstock.kernels.rms_norm import rms_norm
from penstock.shard.communication.distributed import Group
from penstock.shard.models.pooler_config import HeadLayer
from penstock.shard.pooling.activations import activated
from penstock.shard.weights.checkpoint import Checkpoint
from penstock.shard.weights.rank_weights import RankWeights

LEAST_LENGTH = 1e-12
"""A vector that is shorter is not scaled to a length of 1, as sentence-transformers has it."""


class PooledLayer(Protocol):
    """Makes other vectors of vectors, float32 [R, N]; each by itself."""

    def __call__(self, x: Tensor) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class Linear:
    """Multiplies by a matrix, and has an activation and a layer norm behind it."""

    weight: PackedWeight
    bias: Tensor | None
    activation: str
    norm: Tensor | None = None           # [1, N]
    norm_bias: Tensor | None = None
    norm_eps: float = 0.0

    def __call__(self, x: Tensor) -> Tensor:
        out = activated(self.activation, linear(x, self.weight, self.bias))
        return out if self.norm is None else layer_norm(out, self.norm, self.norm_bias, self.norm_eps)[0]


def normalized(x: Tensor) -> Tensor:
    """Returns the vectors x, float32 [R, N], scaled to a length of 1."""
    width = x.shape[1]
    weight = torch.full((width,), width**-0.5, device=x.device)
    return rms_norm(x, weight, LEAST_LENGTH**2 / width)[0]


def read_modules(modules: Sequence[Layer], width: int, group: Group) -> tuple[list[PooledLayer], str]:
    """Returns sentence-transformers' layers behind vectors of this width, and what names their weights. Raises
    CheckpointError."""
    layers: list[PooledLayer] = []
    digests = []
    for module in modules:
        if not isinstance(module, DenseModule):
            layers.append(normalized)
            continue
        checkpoint = Checkpoint(module.folder)
        weights = RankWeights(checkpoint, group, torch.float32)
        weight = weights.whole("linear.weight", module.out_features, width)
        bias = weights.whole("linear.bias", module.out_features) if module.has_bias else None
        layers.append(Linear(pack(weight), bias, module.activation))
        digests.append(checkpoint.digest())
        width = module.out_features
    return layers, " ".join(digests)


def read_head(head: Sequence[HeadLayer], width: int, weights: RankWeights) -> list[PooledLayer]:
    """Returns the layers of a head behind vectors of this width. Raises CheckpointError."""
    layers: list[PooledLayer] = []
    for layer in head:
        weight = weights.whole(f"{layer.name}.weight", layer.out_features, width, dtype=torch.float32)
        width = layer.out_features
        layers.append(Linear(
            pack(weight), _optional(weights, f"{layer.name}.bias", width), layer.activation,
            *_norm(weights, layer.norm, width), layer.norm_eps))
    return layers


def _norm(weights: RankWeights, name: str, width: int) -> tuple[Tensor | None, Tensor | None]:
    if not name:
        return None, None
    bias = _optional(weights, f"{name}.bias", width)
    return weights.whole(f"{name}.weight", width, dtype=torch.float32)[None], None if bias is None else bias[None]


def _optional(weights: RankWeights, name: str, width: int) -> Tensor | None:
    return None if weights.shape(name) is None else weights.whole(name, width, dtype=torch.float32)
