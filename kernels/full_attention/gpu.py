"""Full attention in Triton: a program takes some queries of one head and sequence, over tiles of keys that begin where
the sequence does."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

_COMPUTE = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


@triton.jit(do_not_specialize=["num_sequences", "q_stride", "k_stride", "v_stride"])
def _full_attention(q, q_stride, k, k_stride, v, v_stride, counts, num_sequences, bias, out, factor, window, reach,
                    NUM_HEADS: tl.constexpr, NUM_KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr,
                    SEQUENCES: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
                    COMPUTE: tl.constexpr, HAS_WINDOW: tl.constexpr, HAS_BIAS: tl.constexpr):
    candidate = tl.arange(0, SEQUENCES)
    counted = tl.load(counts + candidate, mask=candidate < num_sequences, other=0)
    own = (counted + BLOCK_M - 1) // BLOCK_M
    ends = tl.cumsum(own, axis=0)
    index = tl.program_id(1)
    if index < tl.sum(own):
        sequence = tl.sum((ends <= index).to(tl.int32))
        first = tl.sum(tl.where(candidate < sequence, counted, 0)).to(tl.int64)
        tile = (index - tl.sum(tl.where(candidate < sequence, own, 0))) * BLOCK_M
        count = tl.load(counts + sequence)
        head = tl.program_id(0)
        m, d = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
        position, is_d = tile + m, d[None, :] < HEAD_DIM
        is_value = (position < count)[:, None] & is_d
        row = first + position
        tile_q = tl.load(q + row[:, None] * q_stride + head * HEAD_DIM + d[None, :], mask=is_value, other=0.0)
        low, high = tile * 0, count
        if HAS_WINDOW:
            low, high = tl.maximum(tile - window, 0), tl.minimum(tile + BLOCK_M + window, count)
        kv_head = head // (NUM_HEADS // NUM_KV_HEADS)
        k += first * k_stride + kv_head * HEAD_DIM
        v += first * v_stride + kv_head * HEAD_DIM
        bias += head * (2 * reach + 1)
        value, bad = _attended(
            tile_q, k, k_stride, v, v_stride, position, is_d, low, high, count, bias, factor, window, reach, 0, 0,
            BLOCK_M, BLOCK_N, BLOCK_D, COMPUTE, HAS_WINDOW, HAS_BIAS, False)
        target = out + row[:, None] * (NUM_HEADS * HEAD_DIM) + head * HEAD_DIM + d[None, :]
        tl.store(target, value.to(out.dtype.element_ty), mask=is_value)
        alone = 0
        if HAS_WINDOW:
            alone = tl.where(tl.max((bad != bad).to(tl.int32)) > 0, tl.minimum(BLOCK_M, count - tile), 0)
        for one in range(alone):
            # An Inf or NaN may be of a value that only other queries see: each for itself, with no other values.
            value, _ = _attended(
                tile_q, k, k_stride, v, v_stride, position, is_d, low, high, count, bias, factor, window, reach,
                tile + one - window, tile + one + window, BLOCK_M, BLOCK_N, BLOCK_D, COMPUTE, HAS_WINDOW, HAS_BIAS,
                True)
            tl.store(target, value.to(out.dtype.element_ty), mask=is_value & (m == one)[:, None])


@triton.jit
def _attended(q, k, k_stride, v, v_stride, position, is_d, low, high, count, bias, factor, window, reach, first_value,
              last_value, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, COMPUTE: tl.constexpr,
              HAS_WINDOW: tl.constexpr, HAS_BIAS: tl.constexpr, IS_ALONE: tl.constexpr):
    """Returns the result [M, D], float32, of the queries q [M, D] for the keys from low to high, and of each dimension
    [D] NaN where a value is Inf or NaN. IS_ALONE: no other values are read than those from the first to the last."""
    d = tl.arange(0, BLOCK_D)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    top, total = tl.full([BLOCK_M], float("-inf"), tl.float32), tl.zeros([BLOCK_M, 16], tl.float32)
    bad = tl.zeros([BLOCK_D], tl.float32)
    for start in range(low // BLOCK_N * BLOCK_N, high, BLOCK_N):
        key = start + tl.arange(0, BLOCK_N)
        is_key = key < count
        is_read = is_key & (key >= first_value) & (key <= last_value) if IS_ALONE else is_key
        tile_k = tl.load(k + key[:, None] * k_stride + d[None, :], mask=is_key[:, None] & is_d, other=0.0)
        tile_v = tl.load(v + key[:, None] * v_stride + d[None, :], mask=is_read[:, None] & is_d, other=0.0)
        weight, decay, total, top = _weights(
            q, tile_k, position, key, total, top, count, bias, factor, window, reach, BLOCK_N, COMPUTE, HAS_WINDOW,
            HAS_BIAS)
        if HAS_WINDOW:
            bad += tl.sum(tile_v.to(tl.float32) * 0.0, axis=0)
        acc = tl.dot(weight.to(COMPUTE), tile_v, acc * decay[:, None], input_precision="ieee")
    return acc / tl.max(total, axis=1)[:, None], bad


@triton.jit
def _weights(q, k, position, key, total, top, count, bias, factor, window, reach, BLOCK_N: tl.constexpr,
             COMPUTE: tl.constexpr, HAS_WINDOW: tl.constexpr, HAS_BIAS: tl.constexpr):
    """Returns the weights [M, N] of a tile's values, the factor [M] of what was summed before it, and with it the
    softmax's total [M, 16], whose columns are equal, and its top [M]. Scores are in units of log 2."""
    score = tl.dot(q, tl.trans(k), input_precision="ieee") * factor
    distance = key[None, :] - position[:, None]
    if HAS_BIAS:
        score += tl.load(bias + (tl.minimum(tl.maximum(distance, -reach), reach) + reach)) * 1.4426950408889634
    is_seen = (key < count)[None, :]
    if HAS_WINDOW:
        is_seen = is_seen & (tl.abs(distance) <= window)
    score = tl.where(is_seen, score, float("-inf"))
    new_top = tl.maximum(top, tl.max(score, axis=1))
    base = tl.where(new_top == float("-inf"), 0.0, new_top)
    weight, decay = tl.exp2(score - base[:, None]), tl.exp2(top - base)
    # A sum by the matrix instruction has one order in all layouts.
    total = tl.dot(weight.to(COMPUTE), tl.full([BLOCK_N, 16], 1.0, COMPUTE), total * decay[:, None],
                   input_precision="ieee")
    return weight, decay, total, new_top


def full_attention(
    q: Tensor, k: Tensor, v: Tensor, counts: Tensor, scale: float, window: int, bias: Tensor | None
) -> Tensor:
    num_tokens, num_heads, head_dim = q.shape
    out = torch.empty((num_tokens, num_heads, head_dim), dtype=q.dtype, device=q.device)
    if not num_tokens:
        return out
    block_d = max(16, triton.next_power_of_2(head_dim))
    is_wide = q.dtype == torch.float32
    block_n = max(16, min(64, (2048 if is_wide else 8192) // block_d))
    block_m = 16 if is_wide else 64 if block_d <= 128 else 32
    grid = (num_heads, num_tokens // block_m + len(counts))
    _full_attention[grid](
        q, q.stride(0), k, k.stride(0), v, v.stride(0), counts, len(counts), counts if bias is None else bias, out,
        scale * math.log2(math.e), window, 0 if bias is None else bias.shape[1] // 2, NUM_HEADS=num_heads,
        NUM_KV_HEADS=k.shape[1], HEAD_DIM=head_dim, SEQUENCES=triton.next_power_of_2(len(counts)), BLOCK_M=block_m,
        BLOCK_N=block_n, BLOCK_D=block_d, COMPUTE=_COMPUTE[q.dtype], HAS_WINDOW=window > 0, HAS_BIAS=bias is not None,
        num_warps=4)
    return out
