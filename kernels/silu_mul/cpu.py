"""silu_mul in C++: float32 inside, one rounding at the end."""

import torch
from torch import Tensor

from penstock.kernels import native
from penstock.kernels.native import DTYPES


def silu_mul(gate_up: Tensor) -> Tensor:
    num_rows, width = gate_up.shape
    out = torch.empty(num_rows, width // 2, dtype=gate_up.dtype)
    native.library.silu_mul(DTYPES[gate_up.dtype], gate_up.data_ptr(), out.data_ptr(), num_rows, width // 2)
    return out
