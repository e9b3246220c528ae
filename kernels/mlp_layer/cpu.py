"""The feed-forward half of a block in one call of csrc/layers.cpp."""

import ctypes
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from penstock.kernels import native
from penstock.kernels.native import DTYPES, address, dtype_of

if TYPE_CHECKING:
    from penstock.kernels.mlp_layer import MlpWeights

_Layer = native.structure("MlpLayer")


def prepare(weights: "MlpWeights") -> ctypes.Structure:
    w = weights
    return _Layer(
        width=w.gate_up.in_features, inner=w.down.in_features, eps=w.eps,
        norm=address(w.norm), norm_dtype=dtype_of(w.norm),
        gate_up=address(w.gate_up.data), gate_up_bias=address(w.gate_up_bias),
        gate_up_bias_dtype=dtype_of(w.gate_up_bias),
        down=address(w.down.data), down_bias=address(w.down_bias), down_bias_dtype=dtype_of(w.down_bias))


def mlp_layer(weights: "MlpWeights", x: Tensor, delta: Tensor | None, partial: bool) -> tuple[Tensor, Tensor]:
    total = x if delta is None else torch.empty_like(x)
    out = torch.empty(x.shape, dtype=torch.float32 if partial else x.dtype)
    native.library.mlp_layer(
        ctypes.addressof(weights.prepared), DTYPES[x.dtype], x.data_ptr(), address(delta), total.data_ptr(),
        out.data_ptr(), partial, len(x))
    return total, out
