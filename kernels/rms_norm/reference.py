"""RMS norm in torch: the sum is rounded once, and the norm of the rounded sum is rounded once."""

from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float, residual: Tensor | None) -> tuple[Tensor, Tensor]:
    total = x if residual is None else (x.double() + residual.double()).to(x.dtype)
    exact = total.double()
    scale = exact.square().mean(dim=-1, keepdim=True).add_(eps).rsqrt_()
    return (exact * scale).mul_(weight).to(x.dtype), total
