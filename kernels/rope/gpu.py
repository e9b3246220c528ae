"""Rotary position embedding in Triton: a program for each token, all heads of q and k; one rounding at the end."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def angles(cos, sin, positions, token, HALF: tl.constexpr, BLOCK: tl.constexpr):
    """Returns the cosines and sines of a token's angles [BLOCK], and which of them there are."""
    angle = tl.load(positions + token) * HALF + tl.arange(0, BLOCK)
    is_half = tl.arange(0, BLOCK) < HALF
    return tl.load(cos + angle, mask=is_half, other=0.0), tl.load(sin + angle, mask=is_half, other=0.0), is_half


@triton.jit
def rotated(source, mask, cos, sin, HALF: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr):
    """Returns the turned pairs of the heads at source [HEADS, 1], in its dtype, and both places within a head."""
    pair = STEP * tl.arange(0, BLOCK)[None, :]
    partner = pair + (HALF if STEP == 1 else 1)
    first = tl.load(source + pair, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(source + partner, mask=mask, other=0.0).to(tl.float32)
    turned_first = (first * cos[None, :] - second * sin[None, :]).to(source.dtype.element_ty)
    turned_second = (second * cos[None, :] + first * sin[None, :]).to(source.dtype.element_ty)
    return turned_first, turned_second, pair, partner


@triton.jit
def rotate(x, out, token, stride, cos, sin, is_half, NUM_HEADS: tl.constexpr, HEADS: tl.constexpr,
           HEAD_DIM: tl.constexpr, HALF: tl.constexpr, BLOCK: tl.constexpr, REST: tl.constexpr, STEP: tl.constexpr):
    """Writes the rotated heads of a token's row of x to out, which is contiguous."""
    head = tl.arange(0, HEADS)[:, None]
    mask = (head < NUM_HEADS) & is_half[None, :]
    source, target = x + token * stride + head * HEAD_DIM, out + (token * NUM_HEADS + head) * HEAD_DIM
    first, second, pair, partner = rotated(source, mask, cos, sin, HALF, BLOCK, STEP)
    tl.store(target + pair, first, mask=mask)
    tl.store(target + partner, second, mask=mask)
    if REST:
        d = 2 * HALF + tl.arange(0, REST)[None, :]
        is_rest = (head < NUM_HEADS) & (d < HEAD_DIM)
        tl.store(target + d, tl.load(source + d, mask=is_rest, other=0.0), mask=is_rest)


@triton.jit
def _rope(q, q_stride, k, k_stride, cos, sin, positions, q_out, k_out, NUM_HEADS: tl.constexpr,
          NUM_KV_HEADS: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr,
          HALF: tl.constexpr, BLOCK: tl.constexpr, REST: tl.constexpr, STEP: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    own_cos, own_sin, is_half = angles(cos, sin, positions, token, HALF, BLOCK)
    rotate(q, q_out, token, q_stride, own_cos, own_sin, is_half, NUM_HEADS, HEADS, HEAD_DIM, HALF, BLOCK, REST, STEP)
    rotate(k, k_out, token, k_stride, own_cos, own_sin, is_half, NUM_KV_HEADS, KV_HEADS, HEAD_DIM, HALF, BLOCK, REST,
           STEP)


def rope(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, is_interleaved: bool
) -> tuple[Tensor, Tensor]:
    (num_tokens, num_heads, head_dim), num_kv_heads, half = q.shape, k.shape[1], cos.shape[1]
    q_out = torch.empty((num_tokens, num_heads, head_dim), dtype=q.dtype, device=q.device)
    k_out = torch.empty((num_tokens, num_kv_heads, head_dim), dtype=q.dtype, device=q.device)
    if num_tokens:
        heads, block, rest = triton.next_power_of_2(num_heads), triton.next_power_of_2(half), head_dim - 2 * half
        _rope[(num_tokens,)](
            q, q.stride(0), k, k.stride(0), cos, sin, positions, q_out, k_out, NUM_HEADS=num_heads,
            NUM_KV_HEADS=num_kv_heads, HEADS=heads, KV_HEADS=triton.next_power_of_2(num_kv_heads), HEAD_DIM=head_dim,
            HALF=half, BLOCK=block, REST=triton.next_power_of_2(rest) if rest else 0, STEP=2 if is_interleaved else 1,
            num_warps=min(16, max(1, heads * block // 512)))
    return q_out, k_out
