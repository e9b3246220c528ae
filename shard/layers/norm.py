"""The norms of a decoder, each with the residual sum in front of it."""

from typing import Protocol

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.layer_norm import layer_norm
from penstock.kernels.rms_norm import rms_norm
from penstock.shard.models.parts import NormConfig
from penstock.shard.weights.rank_weights import RankWeights


class Norm(Protocol):
    """Normalises rows."""

    def __call__(self, x: Tensor, delta: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Returns the norm of x + delta, and x + delta itself, all [T, C]."""


class NoNorm:
    """Stands where other families have a norm."""

    def __call__(self, x: Tensor, delta: Tensor | None = None) -> tuple[Tensor, Tensor]:
        total = x if delta is None else x + delta
        return total, total


class RmsNorm:
    """Divides rows by their root mean square."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        """weight: [C]"""
        self.weight = weight
        self.eps = eps

    def __call__(self, x: Tensor, delta: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return rms_norm(x, self.weight, self.eps, delta)


class LayerNorm:
    """Takes the mean off rows and divides them by their standard deviation."""

    def __init__(self, weight: Tensor, bias: Tensor | None, eps: float) -> None:
        """weight, bias: [G, C]; row t has those of t % G"""
        self.weight = weight
        self.bias = bias
        self.eps = eps

    def __call__(self, x: Tensor, delta: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return layer_norm(x, self.weight, self.bias, self.eps, delta)


def read_norm(config: NormConfig, weights: RankWeights, name: str, width: int) -> Norm:
    """Makes the norm of this name from the checkpoint; without a name there is none."""
    if not name:
        return NoNorm()
    if not config.has_weight:
        return make_norm(config, torch.ones(1, width, dtype=weights.dtype, device=dispatch.device()), None)
    bias = weights.whole(f"{name}.bias", width)[None] if config.has_bias else None
    return make_norm(config, weights.whole(f"{name}.weight", width)[None], bias)


def make_norm(config: NormConfig, weight: Tensor, bias: Tensor | None) -> Norm:
    """Makes a norm of the weights [G, C] that a checkpoint stores. Only layer norm has more than one row of them."""
    if config.offset:
        weight = weight.float() + config.offset  # which the activations' dtype would round
        bias = None if bias is None else bias.float()
    return LayerNorm(weight, bias, config.eps) if config.is_centred else RmsNorm(weight[0], config.eps)
