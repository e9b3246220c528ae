"""The usual layer of transformers' models, with its feed-forward half in one call of our kernels.

Such a layer adds attention of a norm of its input, and then a feed-forward network of a norm of the sum. That a module
is one is found by running it with other functions in the place of its parts.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from penstock.kernels import fused
from penstock.kernels.activation import Activation
from penstock.kernels.fused.mlp import MlpLayer
from penstock.shard.fallback.modules import OurMlp, OurNorm, PackedLinear, rows_of
from penstock.shard.layers.norm import RmsNorm

ATTENTION, MLP = "self_attn", "mlp"
NORMS = ("input_layernorm", "post_attention_layernorm")
TOLERANCE = 1e-6


class _Stand(nn.Module):
    """Stands for a part of a layer, and computes something that no other part does."""

    def __init__(self, function: Callable[[Tensor], Tensor], is_attention: bool = False) -> None:
        super().__init__()
        self._function = function
        self._is_attention = is_attention

    def forward(self, *inputs: Tensor, hidden_states: Tensor | None = None, **_: Any) -> Any:
        out = self._function(inputs[0] if hidden_states is None else hidden_states)
        return (out, None) if self._is_attention else out


STANDS = {NORMS[0]: _Stand(lambda x: 2 * x + 0.1), ATTENTION: _Stand(torch.tanh, is_attention=True),
          NORMS[1]: _Stand(lambda x: 3 * x - 0.2), MLP: _Stand(torch.sin)}


class PreNormForward:
    """Stands for the forward of such a layer."""

    def __init__(self, layer: Any, kernel: MlpLayer) -> None:
        self._layer = layer
        self._kernel = kernel

    def __call__(self, hidden_states: Tensor, *args: Any, **options: Any) -> Tensor:
        layer = self._layer
        attended = layer.self_attn(*args, hidden_states=layer.input_layernorm.forward(hidden_states), **options)[0]
        total, out = self._kernel(rows_of(hidden_states), rows_of(attended), partial=False)
        return (total + out).view(hidden_states.shape)


def fuse_layer(layer: nn.Module) -> bool:
    """Gives a layer the faster forward, if it computes the same. Returns whether it does."""
    parts = dict(layer.named_children())
    norm, mlp = parts.get(NORMS[1]), parts.get(MLP)
    if not fused.is_available() or not isinstance(norm, OurNorm) or not isinstance(mlp, OurMlp):
        return False
    if not isinstance(norm.norm, RmsNorm) or mlp.activation is not Activation.SILU or not _is_pre_norm(layer):
        return False
    down = mlp.down_proj
    if not isinstance(down, PackedLinear) or None in (mlp.gate_up.packed.compiled, down.packed.compiled):
        return False
    kernel = MlpLayer(norm.norm.weight, norm.norm.eps, mlp.gate_up.packed, mlp.gate_up.bias, down.packed, down.bias)
    layer.forward = PreNormForward(layer, kernel)
    return True


def _is_pre_norm(layer: nn.Module) -> bool:
    if set(dict(layer.named_children())) != set(STANDS) or list(layer.parameters(recurse=False)):
        return False
    clone: Any = copy.copy(layer)
    clone._modules = layer._modules | STANDS
    x = torch.randn(1, 3, 8, generator=torch.Generator().manual_seed(0))
    try:
        found = clone(hidden_states=x, position_embeddings=(x, x))
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError, KeyError):
        return False
    total = x + torch.tanh(2 * x + 0.1)
    expected = total + torch.sin(3 * total - 0.2)
    return isinstance(found, Tensor) and found.shape == x.shape and bool((found - expected).abs().max() < TOLERANCE)
