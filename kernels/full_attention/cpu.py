"""Full attention in C++: csrc/attention.cpp, over cells that live as long as the call."""

import ctypes

import torch
from torch import Tensor

from penstock.kernels import native
from penstock.kernels.full_attention.lengths import check_counts
from penstock.kernels.paged_attention.cpu import MAX_HEAD_DIM


def full_attention(
    q: Tensor, k: Tensor, v: Tensor, counts: Tensor, scale: float, window: int, bias: Tensor | None
) -> Tensor:
    num_tokens, num_heads, head_dim = q.shape
    if head_dim > MAX_HEAD_DIM:
        raise ValueError(f"full_attention: head_dim {head_dim} is larger than {MAX_HEAD_DIM}")
    out = torch.empty((num_tokens, num_heads, head_dim), dtype=q.dtype)
    status = ctypes.c_int64()
    native.library.full_attention(
        out.data_ptr(), q.data_ptr(), q.stride(0), k.data_ptr(), k.stride(0), v.data_ptr(), v.stride(0),
        native.DTYPES[q.dtype], k.shape[1], head_dim, counts.data_ptr(), len(counts), num_tokens, num_heads, scale,
        window, native.address(bias), 0 if bias is None else bias.shape[1] // 2, ctypes.byref(status))
    if status.value:
        check_counts(q, counts.tolist())
    return out
