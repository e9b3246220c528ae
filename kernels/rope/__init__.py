"""Rotary position embedding (Su et al. 2021)."""

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.checks import FLOATS, check_axes, check_rotation, check_rows, check_tensor
from penstock.kernels.rope import reference

_rope = dispatch.choose(reference.rope)


def rope(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, is_interleaved: bool = False
) -> tuple[Tensor, Tensor]:
    """Rotates the first R dimensions of each head of q and k by its position's angles; returns new contiguous tensors.

    q          [T, H, D]    float32, bfloat16 or float16; the rows of tokens may lie apart
    k          [T, KV, D]   the same dtype, likewise
    cos, sin   [P, R / 2]   float32, a row per position, R ≤ D
    positions  [T]          int64, each below P
    is_interleaved          dimension 2 i turns with 2 i + 1, as Su et al. have it; otherwise i with i + R / 2, as
                            Hugging Face's Llama has it

    Raises ValueError for shapes or dtypes that do not fit together.
    """
    op = "rope"
    check_axes(op, "q", q, "T, H, D")
    check_axes(op, "k", k, "T, KV, D")
    check_axes(op, "cos", cos, "P, R / 2")
    num_tokens, _, head_dim = q.shape
    check_rows(op, "q", q, q.shape, *FLOATS)
    check_rows(op, "k", k, (num_tokens, k.shape[1], head_dim), q.dtype)
    check_tensor(op, "cos", cos, cos.shape, torch.float32)
    check_tensor(op, "sin", sin, cos.shape, torch.float32)
    check_tensor(op, "positions", positions, (num_tokens,), torch.int64)
    check_rotation(op, cos, head_dim)
    return _rope(q, k, cos, sin, positions, is_interleaved)
