"""kv_write in Triton: a program for K or V of a token, all its heads. The layout is that of paged_attention/gpu.py."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from penstock.kernels.kv_cache import LARGEST, KvCache

_MANTISSAS = {torch.float8_e4m3fn: 3, torch.float8_e5m2: 2, torch.int8: 0}


@triton.jit
def magnitude(x):
    """Returns the largest magnitude of each row of x, float32, and whether all of the row is finite."""
    # A GPU's maximum passes over NaN.
    return tl.max(tl.abs(x), axis=1), tl.min((tl.abs(x) < float("inf")).to(tl.int32), axis=1) > 0


@triton.jit
def scale_of(largest, is_finite, LARGEST: tl.constexpr):
    """Returns the scales of heads, float32. Numbers that are not finite have none, and are NaN whatever is stored."""
    scale = tl.div_rn(largest, tl.full(largest.shape, LARGEST, tl.float32))
    return tl.where(is_finite, tl.where(scale > 0, scale, 1.0), float("nan"))


@triton.jit
def quantised(x, scale, MANTISSA: tl.constexpr, LARGEST: tl.constexpr):
    """Returns x [heads, D] float32 by its scales [heads] in 8 bits, rounded to nearest, ties to even.

    MANTISSA  3 is float8_e4m3fn, 2 is float8_e5m2, 0 is int8
    """
    value = tl.div_rn(x, tl.broadcast_to(scale[:, None], x.shape))
    value = tl.where((scale == scale)[:, None], tl.minimum(tl.maximum(value, -LARGEST), LARGEST), 0.0)
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
    return (code & 0xFF).to(tl.uint8)


@triton.jit
def places(slot_mapping, token, is_v, head, BLOCK_SIZE: tl.constexpr, NUM_HEADS: tl.constexpr,
           HEAD_DIM: tl.constexpr, LARGEST: tl.constexpr):
    """Returns where in the cache the first dimension of each of a token's heads belongs, and where its scale does."""
    entry = tl.load(slot_mapping + token)
    block, offset = entry // BLOCK_SIZE, entry % BLOCK_SIZE
    row = (is_v * NUM_HEADS + head) * BLOCK_SIZE + offset
    block_stride: tl.constexpr = 2 * NUM_HEADS * BLOCK_SIZE * (HEAD_DIM + 4 * (LARGEST > 0))
    scale_place = block * (block_stride // 4) + NUM_HEADS * BLOCK_SIZE * HEAD_DIM // 2 + row
    return block * block_stride + row * HEAD_DIM, scale_place


@triton.jit
def write(source, is_v, token, slot_mapping, stored, scales, BLOCK_SIZE: tl.constexpr, NUM_HEADS: tl.constexpr,
          HEAD_DIM: tl.constexpr, HEADS: tl.constexpr, BLOCK_D: tl.constexpr, MANTISSA: tl.constexpr,
          LARGEST: tl.constexpr):
    """Puts K or V of a token, all its heads at `source`, into its place in the cache."""
    head, d = tl.arange(0, HEADS), tl.arange(0, BLOCK_D)
    is_head = head < NUM_HEADS
    mask = is_head[:, None] & (d < HEAD_DIM)[None, :]
    value = tl.load(source + head[:, None] * HEAD_DIM + d[None, :], mask=mask, other=0.0)
    place, scale_place = places(slot_mapping, token, is_v, head, BLOCK_SIZE, NUM_HEADS, HEAD_DIM, LARGEST)
    if LARGEST > 0:
        exact = value.to(tl.float32)
        largest, is_finite = magnitude(exact)
        scale = scale_of(largest, is_finite, LARGEST)
        value = quantised(exact, scale, MANTISSA, LARGEST)
        tl.store(scales + scale_place, scale, mask=is_head)
    tl.store(stored + place[:, None] + d[None, :], value.to(stored.dtype.element_ty), mask=mask)


@triton.jit
def _kv_write(k, k_stride, v, v_stride, slot_mapping, stored, scales, BLOCK_SIZE: tl.constexpr, NUM_HEADS: tl.constexpr,
              HEAD_DIM: tl.constexpr, HEADS: tl.constexpr, BLOCK_D: tl.constexpr, MANTISSA: tl.constexpr,
              LARGEST: tl.constexpr):
    token, is_v = tl.program_id(0).to(tl.int64), tl.program_id(1)
    source = k + token * k_stride
    if is_v == 1:
        source = v + token * v_stride
    write(source, is_v, token, slot_mapping, stored, scales, BLOCK_SIZE, NUM_HEADS, HEAD_DIM, HEADS, BLOCK_D, MANTISSA,
          LARGEST)


def cache_form(cache: KvCache) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Returns the memory of what a cache stores and of its scales, and the constants that tell of its layout."""
    data = cache.data
    stored, scales = (data, data.view(torch.float32)) if cache.is_scaled else (data.view(cache.dtype), data)
    return stored, scales, {
        "BLOCK_SIZE": cache.block_size, "HEAD_DIM": cache.head_dim, "BLOCK_D": triton.next_power_of_2(cache.head_dim),
        "MANTISSA": _MANTISSAS.get(cache.dtype, 0), "LARGEST": LARGEST.get(cache.dtype, 0.0)}


def kv_write(k: Tensor, v: Tensor, cache: KvCache, slot_mapping: Tensor) -> None:
    num_tokens, num_kv_heads, _ = k.shape
    if not num_tokens:
        return
    stored, scales, form = cache_form(cache)
    heads = triton.next_power_of_2(num_kv_heads)
    _kv_write[(num_tokens, 2)](
        k, k.stride(0), v, v.stride(0), slot_mapping, stored, scales, NUM_HEADS=num_kv_heads, HEADS=heads,
        num_warps=min(16, max(1, heads * form["BLOCK_D"] // 512)), **form)
