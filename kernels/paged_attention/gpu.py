"""Paged attention in Triton: gpu_decode.py for sequences with one query, gpu_prefill.py for those with more.

A block is [2, KV, block_size, D], K and V, each head's tokens adjacent; where the numbers are of 8 bits, their scales,
float32 [2, KV, block_size], follow. Nothing here looks at a value on the device.
"""

import math

import torch
import triton
from torch import Tensor

from penstock.kernels import dispatch, tuning
from penstock.kernels.kv_cache import LARGEST, KvCache
from penstock.kernels.paged_attention import gpu_form
from penstock.kernels.paged_attention.gpu_decode import decode_segments, merge_segments
from penstock.kernels.paged_attention.gpu_form import Form, Shape
from penstock.kernels.paged_attention.gpu_prefill import prefill_tiles
from penstock.kernels.paged_attention.gpu_tile import count_segments


def block_bytes(block_size: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
    if dtype in LARGEST and num_kv_heads * block_size * head_dim % 2:
        raise ValueError(f"block_bytes: {num_kv_heads} KV heads * block_size {block_size} * head_dim {head_dim} is "
                         f"odd, and the scales of {dtype} would not be aligned")
    return 2 * num_kv_heads * block_size * (head_dim * dtype.itemsize + 4 * (dtype in LARGEST))


def paged_attention(
    q: Tensor, cache: KvCache, tables: Tensor, starts: Tensor, counts: Tensor, scale: float, window: int,
    softcap: float, sinks: Tensor | None, is_decode: bool,
) -> Tensor:
    """Launches no kernel for chunks if `is_decode` says that there are none."""
    form = gpu_form.form_of(_shape_of(q, cache))
    return _attend(q, cache, tables, starts, counts, scale, window, softcap, sinks, is_decode, form)


def _attend(
    q: Tensor, cache: KvCache, tables: Tensor, starts: Tensor, counts: Tensor, scale: float, window: int,
    softcap: float, sinks: Tensor | None, is_decode: bool, form: Form,
) -> Tensor:
    num_tokens, num_heads, head_dim = q.shape
    out = torch.empty((num_tokens, num_heads, head_dim), dtype=q.dtype, device=q.device)
    if not num_tokens:
        return out
    num_sequences, max_blocks = tables.shape
    scales = cache.data.view(torch.float32) if cache.is_scaled else cache.data
    stored = cache.data if form.is_read_as_bytes else cache.data.view(cache.dtype)
    constants = {
        **form.constants,
        "BLOCK_SIZE": cache.block_size, "SEQUENCES": triton.next_power_of_2(num_sequences), "HAS_WINDOW": window > 0,
        "HAS_SOFTCAP": softcap > 0}
    factor = scale * math.log2(math.e)
    places = (q, q.stride(0), stored, scales, tables, max_blocks, starts, counts, num_sequences)
    if not (is_decode or num_sequences == 1 == num_tokens):
        grid = (form.head_parts(form.prefill_heads), -(-num_tokens // form.prefill_tokens) + num_sequences)
        prefill_tiles[grid](
            *places, counts if sinks is None else sinks, out, factor, window, softcap, **constants,
            **form.prefill, HAS_SINKS=sinks is not None)
    if is_decode or num_sequences > 1 or num_tokens == 1:
        num_segments = count_segments(max_blocks * cache.block_size, gpu_form.SEGMENT)
        partials = torch.empty((num_sequences, num_segments, num_heads, head_dim), device=q.device)
        sums = torch.empty((num_sequences, num_segments, num_heads, 2), device=q.device)
        decode_segments[(form.programs,)](
            *places, partials, sums, num_segments, factor, window, softcap, **constants, **form.decode)
        merge_segments[(num_sequences, num_heads)](
            partials, sums, num_segments, starts, counts, counts if sinks is None else sinks, out, window,
            SEQUENCES=constants["SEQUENCES"], UNIT=constants["UNIT"], NUM_HEADS=num_heads, HEAD_DIM=head_dim,
            SEGMENT=gpu_form.SEGMENT, BLOCK_D=constants["BLOCK_D"], HAS_WINDOW=window > 0, HAS_SINKS=sinks is not None,
            AT_ONCE=1 if dispatch.is_interpreted() else 16, num_warps=1, enable_fp_fusion=False)
    return out


def tune(phase: str, q: Tensor, cache: KvCache, tables: Tensor, starts: Tensor, counts: Tensor) -> tuning.Outcome:
    """Finds and saves the fastest configuration of "decode" or "prefill" for heads and dtypes like these."""
    shape = _shape_of(q, cache)
    gpu_form.form_of.cache_clear()

    def run(config: tuning.Config) -> Tensor:
        form = gpu_form.make_form(shape, **{phase: config})
        return _attend(q, cache, tables, starts, counts, 0.1, 0, 0.0, None, phase == "decode", form)

    return tuning.tune("paged_attention", shape.key(phase), gpu_form.choices(shape, phase), run)


def _shape_of(q: Tensor, cache: KvCache) -> Shape:
    return Shape(q.dtype, cache.dtype, q.shape[1], cache.num_kv_heads, cache.head_dim, dispatch.is_deterministic(),
                 q.device, tuning.capability())
