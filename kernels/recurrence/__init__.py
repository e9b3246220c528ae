"""The recurrence of linear attention and of state-space models: each head has a matrix, which every token changes."""

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.checks import FLOATS, check_axes, check_rows, check_tensor
from penstock.kernels.recurrence import reference
from penstock.kernels.recurrence.heads import RecurrentHeads
from penstock.kernels.recurrent_state import StateRows

MAX_DIM = 512


_recurrence = dispatch.choose(reference.recurrence)


def recurrence(
    qkv: Tensor, steps: Tensor, gates: Tensor | None, heads: RecurrentHeads, matrices: Tensor, rows: StateRows
) -> Tensor:
    """Returns the values that each token reads at its q after it has written, [T, H, D] in the dtype of qkv.

    qkv       [T, 2 * G * K + H * D]  float32, bfloat16 or float16: q of all groups, k of all groups, v of all heads
    steps     [T, H]                  in the dtype of qkv; before softplus
    gates     [T, H]                  in the dtype of qkv; before sigmoid; for the delta rule alone
    matrices  [N, H, K, D]            float32; of each slot's sequence, changed in place; zeros before position 0;
                                      slots may lie apart

    All is computed in float32, token by token, so the bits of a token do not depend on how its sequence is cut into
    steps. Raises ValueError for shapes or dtypes that do not fit together, and on a processor for rows that do not.
    """
    op, num_heads = "recurrence", heads.num_heads
    check_axes(op, "qkv", qkv, "T, 2 * G * K + H * D")
    check_tensor(op, "qkv", qkv, (len(qkv), heads.width), *FLOATS)
    if num_heads % heads.num_groups or not 0 < heads.key_dim <= MAX_DIM or not 0 < heads.value_dim <= MAX_DIM:
        raise ValueError(f"{op}: {heads.num_groups} groups of {num_heads} heads with matrices [{heads.key_dim}, "
                         f"{heads.value_dim}]: groups must divide heads, dimensions are at most {MAX_DIM}")
    for name, vector in (("rate", heads.rate), ("bias", heads.bias), ("skip", heads.skip)):
        if vector is not None:
            check_tensor(op, name, vector, (num_heads,), torch.float32)
    check_tensor(op, "steps", steps, (len(qkv), num_heads), qkv.dtype)
    if (gates is not None) != heads.is_delta:
        raise ValueError(f"{op}: gates are for the delta rule, which needs them")
    if gates is not None:
        check_tensor(op, "gates", gates, steps.shape, qkv.dtype)
    shape = (len(matrices), num_heads, heads.key_dim, heads.value_dim)
    check_rows(op, "matrices", matrices, shape, torch.float32)
    rows.check(op)
    return _recurrence(qkv, steps, gates, heads, matrices, rows)
