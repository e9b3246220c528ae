"""The recurrence in Triton: a program for some columns of a head's matrix, over the tokens of a sequence one by one."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from penstock.kernels.recurrence.heads import NORM_EPS, RecurrentHeads
from penstock.kernels.recurrent_state import StateRows

MATRIX = 4096
"""The most numbers of a matrix that a program holds in registers, unless a column has more."""


@triton.jit
def _softplus(x):
    return tl.where(x > 20.0, x, tl.log(1.0 + tl.exp(tl.minimum(x, 20.0))))


@triton.jit
def _unit(x, eps):
    return x * (1.0 / tl.sqrt(tl.sum(x * x, axis=0) + eps))


@triton.jit
def _recurrence(qkv, steps, gates, rate, bias, skip, matrices, out, slots, starts, counts, ends, min_step, max_step,
                q_scale, eps, stride, HEADS: tl.constexpr, GROUPS: tl.constexpr, KEY_DIM: tl.constexpr,
                VALUE_DIM: tl.constexpr, KEYS: tl.constexpr, COLUMNS: tl.constexpr, IS_DELTA: tl.constexpr,
                HAS_SKIP: tl.constexpr):
    head, row = tl.program_id(0), tl.program_id(1)
    key, column = tl.arange(0, KEYS), tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    is_key, is_column = key < KEY_DIM, column < VALUE_DIM
    count, is_running = tl.load(counts + row), tl.load(starts + row) > 0
    first = (tl.load(ends + row) - count).to(tl.int64)
    matrices += tl.load(slots + row).to(tl.int64) * stride + head * KEY_DIM * VALUE_DIM
    place = key[:, None] * VALUE_DIM + column[None, :]
    is_place = is_key[:, None] & is_column[None, :]
    state = tl.load(matrices + place, mask=is_place & is_running, other=0.0)
    head_rate, head_bias = tl.load(rate + head), tl.load(bias + head)
    q_at = head // (HEADS // GROUPS) * KEY_DIM + key
    width: tl.constexpr = 2 * GROUPS * KEY_DIM + HEADS * VALUE_DIM
    for index in range(count):
        token = first + index
        at = qkv + token * width
        q = tl.load(at + q_at, mask=is_key, other=0.0).to(tl.float32)
        k = tl.load(at + GROUPS * KEY_DIM + q_at, mask=is_key, other=0.0).to(tl.float32)
        v = tl.load(at + 2 * GROUPS * KEY_DIM + head * VALUE_DIM + column, mask=is_column, other=0.0).to(tl.float32)
        step = _softplus(tl.load(steps + token * HEADS + head).to(tl.float32) + head_bias)
        step = tl.minimum(tl.maximum(step, min_step), max_step)
        state *= tl.exp(step * head_rate)
        if IS_DELTA:
            q, k = _unit(q, eps) * q_scale, _unit(k, eps)
            gate = tl.load(gates + token * HEADS + head).to(tl.float32)
            written = (v - tl.sum(state * k[:, None], axis=0)) * (1.0 / (1.0 + tl.exp(-gate)))
        else:
            written = v * step
        state += k[:, None] * written[None, :]
        read = tl.sum(state * q[:, None], axis=0)
        if HAS_SKIP:
            read += v * tl.load(skip + head)
        tl.store(out + (token * HEADS + head) * VALUE_DIM + column, read.to(out.dtype.element_ty), mask=is_column)
    tl.store(matrices + place, state, mask=is_place)


def recurrence(
    qkv: Tensor, steps: Tensor, gates: Tensor | None, heads: RecurrentHeads, matrices: Tensor, rows: StateRows
) -> Tensor:
    out = torch.empty(len(qkv), heads.num_heads, heads.value_dim, dtype=qkv.dtype, device=qkv.device)
    if not len(qkv):
        return out
    ends = rows.counts.cumsum(0, dtype=torch.int32)
    keys = triton.next_power_of_2(heads.key_dim)
    columns = min(triton.next_power_of_2(heads.value_dim), max(16, MATRIX // keys))
    _recurrence[(heads.num_heads, len(ends), triton.cdiv(heads.value_dim, columns))](
        qkv, steps, gates, heads.rate, heads.bias, heads.skip, matrices, out, rows.slots, rows.starts, rows.counts,
        ends, heads.min_step, heads.max_step, heads.key_dim**-0.5, NORM_EPS, matrices.stride(0), HEADS=heads.num_heads,
        GROUPS=heads.num_groups, KEY_DIM=heads.key_dim, VALUE_DIM=heads.value_dim, KEYS=keys, COLUMNS=columns,
        IS_DELTA=heads.is_delta, HAS_SKIP=heads.skip is not None)
    return out
