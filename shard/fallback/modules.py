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
    return x[0] if x.dim() == 3 and len(x) == 1 and x.is_contiguous() else x.reshape(-1, x.shape[-1]).contiguous()


class Replacement(nn.Module):
    """Stands for a module with a weight [out_features, in_features], which is packed or a part of one that is."""

    def __init__(self, out_features: int, in_features: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.was_read = False            # by code that does not call the module, but takes its weight
        # A model's dtype and device are those of its first parameter.
        self.sample = nn.Parameter(torch.full((1, 1), torch.nan, dtype=dtype, device=dispatch.device()), False)

    @property
    def weight(self) -> Tensor:
        """A weight of the right dtype and shape; what is computed with it is seen to be no number."""
        self.was_read = True
        return self.sample.expand(self.out_features, self.in_features)


class PackedLinear(Replacement):
    """Stands for `nn.Linear`."""

    def __init__(
        self, packed: PackedWeight, bias: Tensor | None, dtype: torch.dtype, out_dtype: torch.dtype | None = None
    ) -> None:
        """dtype: of the weight as it was; out_dtype: of results, if not that of the inputs"""
        super().__init__(packed.out_features, packed.in_features, dtype)
        self.packed = packed
        self.bias = bias
        self._out_dtype = out_dtype

    def forward(self, x: Tensor) -> Tensor:
        out = linear(rows_of(x), self.packed, self.bias, self._out_dtype)
        return out.view(*x.shape[:-1], self.out_features)


class SideBySide:
    """Linears of the same input, packed as one: the first that is called computes all."""

    def __init__(self, packed: PackedWeight, bias: Tensor | None, widths: list[int]) -> None:
        self._packed = packed
        self._bias = bias
        self._widths = widths
        self._x: Tensor | None = None
        self._left: dict[int, Tensor] = {}

    def output(self, x: Tensor, number: int) -> Tensor:
        """Returns the product of x and the linear of this number, [T, N]; its rows may lie apart."""
        if self._x is not x or number not in self._left:
            outputs = linear(rows_of(x), self._packed, self._bias)
            self._x, self._left = x, dict(enumerate(torch.split(outputs, self._widths, dim=1)))
        output = self._left.pop(number)
        if not self._left:
            self._x = None
        return output


class OneOfSeveral(Replacement):
    """Stands for an `nn.Linear` beside others."""

    def __init__(
        self, together: SideBySide, number: int, out_features: int, in_features: int, dtype: torch.dtype
    ) -> None:
        super().__init__(out_features, in_features, dtype)
        self._together = together
        self._number = number

    def forward(self, x: Tensor) -> Tensor:
        return self._together.output(x, self._number).view(*x.shape[:-1], self.out_features)


class PackedEmbedding(Replacement):
    """Stands for `nn.Embedding`."""

    def __init__(self, packed: PackedWeight, dtype: torch.dtype) -> None:
        super().__init__(packed.out_features, packed.in_features, dtype)
        self.packed = packed

    def forward(self, ids: Tensor) -> Tensor:
        return weight_rows(self.packed, ids.reshape(-1).long()).view(*ids.shape, self.in_features)


class OurNorm(nn.Module):
    """Stands for a norm of rows."""

    def __init__(self, norm: Norm, weight: Tensor) -> None:
        super().__init__()
        self.norm = norm
        self.register_buffer("weight", weight, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(rows_of(x))[0].view(x.shape)


class OurMlp(nn.Module):
    """Stands for a feed-forward network of three linears."""

    def __init__(self, gate_up: PackedLinear, down: nn.Module, activation: Activation) -> None:
        super().__init__()
        self.gate_up = gate_up
        self.down_proj = down
        self.activation = activation

    def forward(self, x: Tensor, *_: Any) -> Tensor:
        inner = linear(rows_of(x), self.gate_up.packed, self.gate_up.bias)
        out: Tensor = self.down_proj(activate_gate(inner, self.activation))
        return out.view(*x.shape[:-1], out.shape[-1])
