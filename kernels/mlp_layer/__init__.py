"""The feed-forward half of a decoder's block: SwiGLU (Shazeer 2020) behind a norm."""

import importlib
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.checks import FLOATS, check_axes, check_tensor
from penstock.kernels.linear import DenseWeight, PackedWeight

_implementation = dispatch.choose("mlp_layer")


@dataclass(frozen=True, slots=True)
class MlpWeights:
    """The weights of one layer, and what else it is made of. C is the width."""

    norm: Tensor  # [C]
    eps: float
    gate_up: PackedWeight  # [2 * I, C]: of the gate and of what it gates, one below the other
    gate_up_bias: Tensor | None
    down: PackedWeight  # [C, I]
    down_bias: Tensor | None
    prepared: Any = field(init=False, repr=False, compare=False)
    """What the implementation makes of it."""

    def __post_init__(self) -> None:
        """Raises ValueError for shapes that do not fit together."""
        op, width, outputs = "MlpWeights", self.gate_up.in_features, self.gate_up.out_features
        check_tensor(op, "norm", self.norm, (width,), *FLOATS)
        if 2 * self.down.in_features != outputs or self.down.out_features != width:
            raise ValueError(f"{op}: down is {[self.down.out_features, self.down.in_features]}, "
                             f"gate_up {[outputs, width]}")
        for name, bias, length in (("gate_up_bias", self.gate_up_bias, outputs), ("down_bias", self.down_bias, width)):
            if bias is not None:
                check_tensor(op, name, bias, (length,), *FLOATS)
        object.__setattr__(self, "prepared", _implementation_of(self).prepare(self))


def mlp_layer(
    weights: MlpWeights, x: Tensor, delta: Tensor | None, partial: bool = False
) -> tuple[Tensor, Tensor]:
    """(total, out): total = x + delta, or x; out = the gated norm of total, by the down weight.

    x, delta  [T, C]  float32, bfloat16 or float16, the same; total is too
    out       [T, C]  of the dtype of x; if `partial`, float32 sums without bias, as of `linear`

    The bits are those of the ops rms_norm, linear, silu_mul and linear one after the other, which is what reference.py
    does. Raises ValueError for shapes or dtypes that do not fit together.
    """
    op = "mlp_layer"
    check_axes(op, "x", x, "T, C")
    shape = (x.shape[0], weights.gate_up.in_features)
    check_tensor(op, "x", x, shape, *FLOATS)
    if delta is not None:
        check_tensor(op, "delta", delta, shape, x.dtype)
    result: tuple[Tensor, Tensor] = _implementation_of(weights).mlp_layer(weights, x, delta, partial)
    return result


def _implementation_of(weights: MlpWeights) -> ModuleType:
    """Returns what computes this layer: its ops one by one, if they have to choose by the format of a weight."""
    is_dense = isinstance(weights.gate_up, DenseWeight) and isinstance(weights.down, DenseWeight)
    return _implementation if is_dense else importlib.import_module("penstock.kernels.mlp_layer.reference")
