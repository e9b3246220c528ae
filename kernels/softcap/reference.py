"""Softcapping in torch: float64, one rounding."""

from torch import Tensor


def softcap(x: Tensor, cap: float) -> Tensor:
    return (cap * (x.double() / cap).tanh()).to(x.dtype)
