"""Rotary position embedding in torch: float64 products, one rounding."""

import torch
from torch import Tensor


def rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    cos = cos[positions].double()[:, None]
    sin = sin[positions].double()[:, None]
    return _rotate(q, cos, sin), _rotate(k, cos, sin)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = cos.shape[-1]
    first, second = x[..., :half].double(), x[..., half : 2 * half].double()
    out = torch.empty_like(x)
    out[..., :half] = first * cos - second * sin
    out[..., half : 2 * half] = second * cos + first * sin
    out[..., 2 * half :] = x[..., 2 * half :]
    return out
