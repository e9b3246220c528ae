"""Rotary position embedding in C++: float32 products and sums, one rounding at the end."""

import torch
from torch import Tensor

from penstock.kernels import native
from penstock.kernels.native import DTYPES


def rope(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, is_interleaved: bool
) -> tuple[Tensor, Tensor]:
    (num_tokens, heads, head_dim), kv_heads = q.shape, k.shape[1]
    q_out = torch.empty(num_tokens, heads, head_dim, dtype=q.dtype)
    k_out = torch.empty(num_tokens, kv_heads, head_dim, dtype=q.dtype)
    native.library.rope(
        DTYPES[q.dtype], q.data_ptr(), q.stride(0), heads, k.data_ptr(), k.stride(0), kv_heads, cos.data_ptr(),
        sin.data_ptr(), positions.data_ptr(), q_out.data_ptr(), k_out.data_ptr(), num_tokens, head_dim, cos.shape[1],
        is_interleaved)
    return q_out, k_out
