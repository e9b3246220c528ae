"""Rotary position embedding in torch: float64 products, one rounding."""

import torch
from torch import Tensor


def rope(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, is_interleaved: bool
) -> tuple[Tensor, Tensor]:
    cos = cos[positions].double()[:, None]
    sin = sin[positions].double()[:, None]
    return _rotate(q, cos, sin, is_interleaved), _rotate(k, cos, sin, is_interleaved)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor, is_interleaved: bool) -> Tensor:
    half = cos.shape[-1]
    firsts = slice(0, 2 * half, 2) if is_interleaved else slice(half)
    seconds = slice(1, 2 * half, 2) if is_interleaved else slice(half, 2 * half)
    first, second = x[..., firsts].double(), x[..., seconds].double()
    out = torch.empty_like(x)
    out[..., firsts] = first * cos - second * sin
    out[..., seconds] = second * cos + first * sin
    out[..., 2 * half :] = x[..., 2 * half :]
    return out
