"""Computes the feed-forward half of a block in one call."""

import ctypes
from dataclasses import dataclass, field

import torch
from torch import Tensor

from penstock.kernels import native
from penstock.kernels.checks import FLOATS, check_axes, check_tensor
from penstock.kernels.fused.attention import adapters_address
from penstock.kernels.linear import PackedWeight
from penstock.kernels.lora.rows import AdapterRows
from penstock.kernels.native import DTYPES, address, dtype_of


@dataclass(frozen=True, slots=True)
class MlpLayer:
    """Holds the weights of one layer; a call runs rms_norm, linear, activate_gate and linear. C is the width."""

    norm: Tensor  # [C]
    eps: float
    gate_up: PackedWeight  # [2 * I, C]: of the gate and of what it gates, one below the other
    gate_up_bias: Tensor | None
    down: PackedWeight  # [C, I]
    down_bias: Tensor | None
    gate_up_site: int = 0  # the numbers of the linears in adapters
    down_site: int = 0
    _struct: ctypes.Structure = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raises ValueError for shapes that do not fit together."""
        op, width, outputs = "MlpLayer", self.gate_up.in_features, self.gate_up.out_features
        check_tensor(op, "norm", self.norm, (width,), *FLOATS)
        if 2 * self.down.in_features != outputs or self.down.out_features != width:
            raise ValueError(f"{op}: down is {[self.down.out_features, self.down.in_features]}, "
                             f"gate_up {[outputs, width]}")
        for name, bias, length in (("gate_up_bias", self.gate_up_bias, outputs), ("down_bias", self.down_bias, width)):
            if bias is not None:
                check_tensor(op, name, bias, (length,), *FLOATS)
        object.__setattr__(self, "_struct", self._structure())

    def __call__(
        self, x: Tensor, delta: Tensor | None, partial: bool, adapters: AdapterRows | None = None,
        shrunk: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Returns (total, out): total = x + delta, or x; out = the gated norm of total, by the down weight.

        x, delta  [T, C]  float32, bfloat16 or float16, the same; total is too
        out       [T, C]  of the dtype of x; if `partial`, float32 sums without bias, as of `linear`
        shrunk            where down's sums of adapters go if `partial`, as of `shrink`; None if they have none

        Raises ValueError for shapes or dtypes that do not fit together.
        """
        op = "MlpLayer"
        check_axes(op, "x", x, "T, C")
        shape = (x.shape[0], self.gate_up.in_features)
        check_tensor(op, "x", x, shape, *FLOATS)
        if delta is not None:
            check_tensor(op, "delta", delta, shape, x.dtype)
        total = x if delta is None else torch.empty_like(x)
        out = torch.empty(shape, dtype=torch.float32 if partial else x.dtype)
        native.library.mlp_layer(
            ctypes.addressof(self._struct), DTYPES[x.dtype], x.data_ptr(), address(delta), total.data_ptr(),
            out.data_ptr(), partial, shape[0], adapters_address(adapters), address(shrunk))
        return total, out

    @property
    def width(self) -> int:
        return self.gate_up.in_features

    @property
    def address(self) -> int:
        """Returns where csrc/structures.h's struct lies for as long as the layer lives."""
        return ctypes.addressof(self._struct)

    def _structure(self) -> ctypes.Structure:
        return native.structure("MlpLayer")(
            width=self.gate_up.in_features, inner=self.down.in_features, eps=self.eps,
            norm=address(self.norm), norm_dtype=dtype_of(self.norm), gate_up=address(self.gate_up.compiled),
            gate_up_bias=address(self.gate_up_bias), gate_up_bias_dtype=dtype_of(self.gate_up_bias),
            down=address(self.down.compiled), down_bias=address(self.down_bias),
            down_bias_dtype=dtype_of(self.down_bias), gate_up_site=self.gate_up_site, down_site=self.down_site)
