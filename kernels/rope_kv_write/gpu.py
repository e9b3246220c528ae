"""rope_kv_write in Triton: a program for q, for K and for V of a token, each all its heads."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from penstock.kernels.kv_cache import KvCache
from penstock.kernels.kv_write.gpu import cache_form, magnitude, places, quantised, scale_of, write
from penstock.kernels.rope.gpu import angles, rotate, rotated


@triton.jit
def _write_rotated(k, token, k_stride, cos, sin, is_half, slot_mapping, stored, scales, BLOCK_SIZE: tl.constexpr,
                   NUM_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, HEADS: tl.constexpr, HALF: tl.constexpr,
                   BLOCK: tl.constexpr, REST: tl.constexpr, STEP: tl.constexpr, MANTISSA: tl.constexpr,
                   LARGEST: tl.constexpr):
    head = tl.arange(0, HEADS)
    is_head = head < NUM_HEADS
    mask = is_head[:, None] & is_half[None, :]
    source = k + token * k_stride + head[:, None] * HEAD_DIM
    first, second, pair, partner = rotated(source, mask, cos, sin, HALF, BLOCK, STEP)
    place, scale_place = places(slot_mapping, token, 0, head, BLOCK_SIZE, NUM_HEADS, HEAD_DIM, LARGEST)
    target = stored + place[:, None]
    if REST:
        d = 2 * HALF + tl.arange(0, REST)[None, :]
        is_rest = is_head[:, None] & (d < HEAD_DIM)
        rest = tl.load(source + d, mask=is_rest, other=0.0)
    if LARGEST > 0:
        largest, is_finite = magnitude(first.to(tl.float32))
        of_second, is_second_finite = magnitude(second.to(tl.float32))
        largest, is_finite = tl.maximum(largest, of_second), is_finite & is_second_finite
        if REST:
            of_rest, is_rest_finite = magnitude(rest.to(tl.float32))
            largest, is_finite = tl.maximum(largest, of_rest), is_finite & is_rest_finite
        scale = scale_of(largest, is_finite, LARGEST)
        tl.store(scales + scale_place, scale, mask=is_head)
        first = quantised(first.to(tl.float32), scale, MANTISSA, LARGEST)
        second = quantised(second.to(tl.float32), scale, MANTISSA, LARGEST)
        if REST:
            rest = quantised(rest.to(tl.float32), scale, MANTISSA, LARGEST)
    tl.store(target + pair, first.to(stored.dtype.element_ty), mask=mask)
    tl.store(target + partner, second.to(stored.dtype.element_ty), mask=mask)
    if REST:
        tl.store(target + d, rest.to(stored.dtype.element_ty), mask=is_rest)


@triton.jit
def _rope_kv_write(q, q_stride, k, k_stride, v, v_stride, cos, sin, positions, slot_mapping, q_out, stored, scales,
                   NUM_HEADS: tl.constexpr, NUM_KV_HEADS: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr,
                   HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, HALF: tl.constexpr, BLOCK: tl.constexpr,
                   REST: tl.constexpr, STEP: tl.constexpr, BLOCK_SIZE: tl.constexpr, MANTISSA: tl.constexpr,
                   LARGEST: tl.constexpr):
    token, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if part == 0:
        own_cos, own_sin, is_half = angles(cos, sin, positions, token, HALF, BLOCK)
        rotate(q, q_out, token, q_stride, own_cos, own_sin, is_half, NUM_HEADS, HEADS, HEAD_DIM, HALF, BLOCK, REST,
               STEP)
    elif part == 1:
        own_cos, own_sin, is_half = angles(cos, sin, positions, token, HALF, BLOCK)
        _write_rotated(k, token, k_stride, own_cos, own_sin, is_half, slot_mapping, stored, scales, BLOCK_SIZE,
                       NUM_KV_HEADS, HEAD_DIM, KV_HEADS, HALF, BLOCK, REST, STEP, MANTISSA, LARGEST)
    else:
        write(v + token * v_stride, 1, token, slot_mapping, stored, scales, BLOCK_SIZE, NUM_KV_HEADS, HEAD_DIM,
              KV_HEADS, BLOCK_D, MANTISSA, LARGEST)


def rope_kv_write(
    q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, is_interleaved: bool, cache: KvCache,
    slot_mapping: Tensor,
) -> Tensor:
    (num_tokens, num_heads, head_dim), num_kv_heads, half = q.shape, k.shape[1], cos.shape[1]
    q_out = torch.empty((num_tokens, num_heads, head_dim), dtype=q.dtype, device=q.device)
    if num_tokens:
        stored, scales, form = cache_form(cache)
        heads, block, rest = triton.next_power_of_2(num_heads), triton.next_power_of_2(half), head_dim - 2 * half
        _rope_kv_write[(num_tokens, 3)](
            q, q.stride(0), k, k.stride(0), v, v.stride(0), cos, sin, positions, slot_mapping, q_out, stored, scales,
            NUM_HEADS=num_heads, NUM_KV_HEADS=num_kv_heads, HEADS=heads,
            KV_HEADS=triton.next_power_of_2(num_kv_heads), HALF=half, BLOCK=block,
            REST=triton.next_power_of_2(rest) if rest else 0, STEP=2 if is_interleaved else 1,
            num_warps=min(16, max(1, heads * form["BLOCK_D"] // 1024)), **form)
    return q_out
