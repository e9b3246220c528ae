"""Softcapping in C++."""

import torch
from torch import Tensor

from penstock.kernels import native


def softcap(x: Tensor, cap: float) -> Tensor:
    out = torch.empty_like(x)
    native.library.softcap(x.data_ptr(), cap, out.data_ptr(), *x.shape)
    return out
