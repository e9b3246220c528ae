"""Our ops as modules that stand where transformers has its own."""

from typing import Any

import torch
from torch import Tensor, nn

from penstock.kernels import dispatch
from penstock.kernels.activation import Activation, activate_gate
from penstock.kernels.linear import PackedWeight, linear, weight_rows
from penstock.shard.layers.norm import Norm


def rows_of(x: Tensor) -> Tensor:
    """Returns x [..., C] as contiguous rows [T, C]."""
    return x.reshape(-1, x.shape[-1]).contiguous()


class Packed(nn.Module):
    """Holds a packed weight."""

    def __init__(self, packed: PackedWeight, dtype: torch.dtype) -> None:
        super().__init__()
        self.packed = packed
        self.in_features, self.out_features = packed.in_features, packed.out_features
        self.was_read = False            # by code that does not call the module, but takes its weight
        # A model's dtype and device are those of its first parameter.
        self.sample = nn.Parameter(torch.full((1, 1), torch.nan, dtype=dtype, device=dispatch.device()), False)

    @property
    def weight(self) -> Tensor:
        """A weight of the right dtype and shape; what is computed with it is seen to be no number."""
        self.was_read = True
        return self.sample.expand(self.out_features, self.in_features)


class PackedLinear(Packed):
    """Stands for `nn.Linear`."""

    def __init__(
        self, packed: PackedWeight, bias: Tensor | None, dtype: torch.dtype, out_dtype: torch.dtype | None = None
    ) -> None:
        """dtype: of the weight as it was; out_dtype: of results, if not that of the inputs"""
        super().__init__(packed, dtype)
        self.bias = bias
        self._out_dtype = out_dtype

    def forward(self, x: Tensor) -> Tensor:
        out = linear(rows_of(x), self.packed, self.bias, self._out_dtype)
        return out.view(*x.shape[:-1], self.out_features)


class PackedEmbedding(Packed):
    """Stands for `nn.Embedding`."""

    def forward(self, ids: Tensor) -> Tensor:
        return weight_rows(self.packed, ids.reshape(-1)).view(*ids.shape, self.in_features)


class OurNorm(nn.Module):
    """Stands for a norm of rows."""

    def __init__(self, norm: Norm, weight: Tensor) -> None:
        super().__init__()
        self._norm = norm
        self.register_buffer("weight", weight, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self._norm(rows_of(x))[0].view(x.shape)


class OurMlp(nn.Module):
    """Stands for a feed-forward network of three linears."""

    def __init__(self, gate_up: PackedLinear, down: nn.Module, activation: Activation) -> None:
        super().__init__()
        self.gate_up = gate_up
        self.down_proj = down
        self._activation = activation

    def forward(self, x: Tensor, *_: Any) -> Tensor:
        inner = linear(rows_of(x), self.gate_up.packed, self.gate_up.bias)
        out: Tensor = self.down_proj(activate_gate(inner, self._activation))
        return out.view(*x.shape[:-1], out.shape[-1])
