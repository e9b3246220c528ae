"""kv_write in Triton: a program for K or V of a token, all its heads. The layout is that of paged_attention/gpu.py."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from penstock.kernels.kv_cache import LARGEST, KvCache

_MANTISSAS = {torch.float8_e4m3fn: 3, torch.float8_e5m2: 2, torch.int8: 0}


@triton.jit
def quantised(x, MANTISSA: tl.constexpr, LARGEST: tl.constexpr):
    """Returns x [heads, D] float32 as (bytes [heads, D], scales [heads]), rounded to nearest, ties to even.

    MANTISSA  3 is float8_e4m3fn, 2 is float8_e5m2, 0 is int8
    """
    largest = tl.max(tl.abs(x), axis=1)
    scale = tl.div_rn(largest, tl.full(largest.shape, LARGEST, tl.float32))
    # A GPU's maximum passes over NaN. What is not finite has no scale, and is NaN whatever is stored.
    is_finite = tl.min((tl.abs(x) < float("inf")).to(tl.int32), axis=1) > 0
    scale = tl.where(is_finite, tl.where(scale > 0, scale, 1.0), float("nan"))
    value = tl.div_rn(x, tl.broadcast_to(scale[:, None], x.shape))
    value = tl.where(is_finite[:, None], tl.minimum(tl.maximum(value, -LARGEST), LARGEST), 0.0)
    if MANTISSA == 0:
        code = ((value + 12582912.0) - 12582912.0).to(tl.int32)  # 1.5 * 2²³ leaves no bits behind the point
    else:
        BIAS: tl.constexpr = 2 ** (6 - MANTISSA) - 1
        size = tl.abs(value)
        bits = size.to(tl.int32, bitcast=True)
        rounded = bits + (1 << (22 - MANTISSA)) - 1 + (bits >> (23 - MANTISSA) & 1)
        normal = (rounded >> (23 - MANTISSA)) - ((127 - BIAS) << MANTISSA)
        # Below the smallest normal number the steps are equal, and so they are for a float32 of this size.
        step = size + 2.0 ** (24 - BIAS - MANTISSA)
        small = step.to(tl.int32, bitcast=True) & 15
        code = tl.where(size < 2.0 ** (1 - BIAS), small, normal) | (value < 0).to(tl.int32) << 7
    return (code & 0xFF).to(tl.uint8), scale


@triton.jit
def _kv_write(k, k_stride, v, v_stride, slot_mapping, stored, scales, BLOCK_SIZE: tl.constexpr, NUM_HEADS: tl.constexpr,
              HEAD_DIM: tl.constexpr, HEADS: tl.constexpr, BLOCK_D: tl.constexpr, MANTISSA: tl.constexpr,
              LARGEST: tl.constexpr):
    token, is_v = tl.program_id(0).to(tl.int64), tl.program_id(1)
    head, d = tl.arange(0, HEADS), tl.arange(0, BLOCK_D)
    is_head = head < NUM_HEADS
    mask = is_head[:, None] & (d < HEAD_DIM)[None, :]
    source = head[:, None] * HEAD_DIM + d[None, :]
    if is_v == 0:
        value = tl.load(k + token * k_stride + source, mask=mask, other=0.0)
    else:
        value = tl.load(v + token * v_stride + source, mask=mask, other=0.0)
    entry = tl.load(slot_mapping + token)
    block, offset = entry // BLOCK_SIZE, entry % BLOCK_SIZE
    row = (is_v * NUM_HEADS + head) * BLOCK_SIZE + offset
    block_stride: tl.constexpr = 2 * NUM_HEADS * BLOCK_SIZE * (HEAD_DIM + 4 * (LARGEST > 0))
    place = block * block_stride + row[:, None] * HEAD_DIM + d[None, :]
    if LARGEST > 0:
        value, scale = quantised(value.to(tl.float32), MANTISSA, LARGEST)
        scale_place = block * (block_stride // 4) + NUM_HEADS * BLOCK_SIZE * HEAD_DIM // 2 + row
        tl.store(scales + scale_place, scale, mask=is_head)
    tl.store(stored + place, value.to(stored.dtype.element_ty), mask=mask)


def kv_write(k: Tensor, v: Tensor, cache: KvCache, slot_mapping: Tensor) -> None:
    num_tokens, num_kv_heads, head_dim = k.shape
    if not num_tokens:
        return
    heads, block_d = triton.next_power_of_2(num_kv_heads), triton.next_power_of_2(head_dim)
    data, is_scaled = cache.data, cache.is_scaled
    _kv_write[(num_tokens, 2)](
        k, k.stride(0), v, v.stride(0), slot_mapping, data if is_scaled else data.view(cache.dtype),
        data.view(torch.float32) if is_scaled else data, BLOCK_SIZE=cache.block_size, NUM_HEADS=num_kv_heads,
        HEAD_DIM=head_dim, HEADS=heads, BLOCK_D=block_d, MANTISSA=_MANTISSAS.get(cache.dtype, 0),
        LARGEST=LARGEST.get(cache.dtype, 0.0), num_warps=min(16, max(1, heads * block_d // 512)))
