"""Activations in C++: float32 inside, one rounding at the end."""

import torch
from torch import Tensor

from penstock.kernels import native
from penstock.kernels.activation.kind import Activation
from penstock.kernels.native import DTYPES


def activate(x: Tensor, activation: Activation) -> Tensor:
    return _launch(x, activation, x.shape[1], is_gated=False)


def activate_gate(gate_up: Tensor, activation: Activation) -> Tensor:
    return _launch(gate_up, activation, gate_up.shape[1] // 2, is_gated=True)


def _launch(x: Tensor, activation: Activation, width: int, is_gated: bool) -> Tensor:
    out = torch.empty(len(x), width, dtype=x.dtype)
    native.library.activation(activation.number, is_gated, DTYPES[x.dtype], x.data_ptr(), out.data_ptr(), len(x), width)
    return out
