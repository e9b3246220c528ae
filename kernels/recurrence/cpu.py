"""The recurrence in C++ (csrc/recurrence.cpp), in float32."""

import ctypes

import torch
from torch import Tensor

from penstock.kernels import native
from penstock.kernels.native import DTYPES, address
from penstock.kernels.recurrence.heads import RecurrentHeads
from penstock.kernels.recurrent_state import StateRows


def recurrence(
    qkv: Tensor, steps: Tensor, gates: Tensor | None, heads: RecurrentHeads, matrices: Tensor, rows: StateRows
) -> Tensor:
    rows.check_values("recurrence", len(qkv), len(matrices))
    out = torch.empty(len(qkv), heads.num_heads, heads.value_dim, dtype=qkv.dtype)
    struct = native.structure("RecurrentHeads")(
        heads=heads.num_heads, groups=heads.num_groups, key_dim=heads.key_dim, value_dim=heads.value_dim,
        is_delta=heads.is_delta, min_step=heads.min_step, max_step=heads.max_step, rate=heads.rate.data_ptr(),
        bias=heads.bias.data_ptr(), skip=address(heads.skip))
    native.library.recurrence(
        ctypes.byref(struct), DTYPES[qkv.dtype], qkv.data_ptr(), steps.data_ptr(), address(gates), matrices.data_ptr(),
        matrices.stride()[0], rows.slots.data_ptr(), rows.starts.data_ptr(), rows.counts.data_ptr(), len(rows.slots),
        out.data_ptr())
    return out
