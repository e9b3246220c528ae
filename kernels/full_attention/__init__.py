"""Attends without a causal mask and without a cache: encoders and images, whose tokens see one another."""

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.checks import FLOATS, check_axes, check_rows, check_tensor
from penstock.kernels.full_attention import reference

_full_attention = dispatch.choose(reference.full_attention)


def full_attention(
    q: Tensor, k: Tensor, v: Tensor, counts: Tensor, *, scale: float, window: int = 0, bias: Tensor | None = None
) -> Tensor:
    """Attends from every query over the keys and values of its own sequence: [T, H, D], dtype of q.

    q       [T, H, D]      float32, bfloat16 or float16; the sequences' queries one after the other
    k, v    [T, KV, D]     dtype of q. H is a multiple of KV; query head h reads KV head h // (H // KV)
    counts  [S]            int32; tokens of each sequence, their sum is T
    scale                  factor of q·k
    window                 a query sees keys at most so many positions before and behind it; 0 is no window
    bias    [H, 2 * R + 1] float32; a query at i adds bias[h, clamp(j - i, -R, R) + R] to the score of the key at j

    A sequence's bits are its own: each sum has one order, whatever else is in the step. Keys that a query does not see
    never reach its output, not even as 0 * NaN. Raises ValueError for shapes, dtypes or counts that do not fit
    together; a GPU does not look at the values of counts.
    """
    op = "full_attention"
    check_axes(op, "q", q, "T, H, D")
    check_axes(op, "k", k, "T, KV, D")
    check_axes(op, "counts", counts, "S")
    num_tokens, num_heads, head_dim = q.shape
    shape = (num_tokens, k.shape[1], head_dim)
    check_rows(op, "q", q, q.shape, *FLOATS)
    check_rows(op, "k", k, shape, q.dtype)
    check_rows(op, "v", v, shape, q.dtype)
    check_tensor(op, "counts", counts, counts.shape, torch.int32)
    if num_heads % shape[1]:
        raise ValueError(f"{op}: q {list(q.shape)} has {num_heads} heads, no multiple of the {shape[1]} of k")
    if window < 0:
        raise ValueError(f"{op}: window {window} must not be negative")
    if bias is not None:
        check_axes(op, "bias", bias, "H, 2 * R + 1")
        check_tensor(op, "bias", bias, (num_heads, bias.shape[1] | 1), torch.float32)
    return _full_attention(q, k, v, counts, scale, window, bias)
