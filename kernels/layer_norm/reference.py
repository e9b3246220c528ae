"""Layer norm in torch: the sum is rounded once, and the norm of the rounded sum is rounded once."""

from torch import Tensor


def layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, residual: Tensor | None
) -> tuple[Tensor, Tensor]:
    total = x if residual is None else (x.double() + residual.double()).to(x.dtype)
    exact = total.double()
    exact = exact - exact.mean(dim=-1, keepdim=True)
    scale = exact.square().mean(dim=-1, keepdim=True).add_(eps).rsqrt_()
    normed = (exact * scale).view(-1, *weight.shape) * weight
    if bias is not None:
        normed += bias
    return normed.view(x.shape).to(x.dtype), total
