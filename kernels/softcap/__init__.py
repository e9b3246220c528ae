"""Softcapping (Bello et al. 2017): numbers are bent into a range."""

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.checks import check_axes, check_tensor
from penstock.kernels.softcap import reference

_softcap = dispatch.choose(reference.softcap)


def softcap(x: Tensor, cap: float) -> Tensor:
    """Returns cap * tanh(x / cap) of each number of x [R, N], float32, in the same shape and dtype.

    Raises ValueError for another dtype or shape, and unless cap is above 0.
    """
    check_axes("softcap", "x", x, "R, N")
    check_tensor("softcap", "x", x, x.shape, torch.float32)
    if cap <= 0:
        raise ValueError(f"softcap: cap {cap} must be above 0")
    return _softcap(x, cap)
