"""Paged attention in Triton: gpu_decode.py for sequences with one query, gpu_prefill.py for those with more.

A block is [2, KV, block_size, D], K and V, each head's tokens adjacent; where the numbers are of 8 bits, their scales,
float32 [2, KV, block_size], follow. Nothing here looks at a value on the device.
"""

import functools
import math

import torch
import triton
from torch import Tensor

from penstock.kernels import dispatch, tuning
from penstock.kernels.kv_cache import LARGEST, KvCache
from penstock.kernels.paged_attention import gpu_form
from penstock.kernels.paged_attention.gpu_decode import decode_segments
from penstock.kernels.paged_attention.gpu_form import Form, Shape
from penstock.kernels.paged_attention.gpu_prefill import prefill_tiles
from penstock.kernels.paged_attention.gpu_tile import count_segments
from penstock.kernels.paged_attention.score_form import ScoreForm


def block_bytes(block_size: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
    if dtype in LARGEST and num_kv_heads * block_size * head_dim % 2:
        raise ValueError(f"block_bytes: {num_kv_heads} KV heads * block_size {block_size} * head_dim {head_dim} is "
                         f"odd, and the scales of {dtype} would not be aligned")
    return 2 * num_kv_heads * block_size * (head_dim * dtype.itemsize + 4 * (dtype in LARGEST))


def paged_attention(
    q: Tensor, cache: KvCache, tables: Tensor, starts: Tensor, counts: Tensor, form: ScoreForm, is_decode: bool
) -> Tensor:
    """Launches no kernel for chunks if `is_decode` says that there are none."""
    return _attend(q, cache, tables, starts, counts, form, is_decode, gpu_form.form_of(_shape_of(q, cache)))


def _attend(
    q: Tensor, cache: KvCache, tables: Tensor, starts: Tensor, counts: Tensor, form: ScoreForm, is_decode: bool,
    cut: Form,
) -> Tensor:
    num_tokens, num_heads, head_dim = q.shape
    out = torch.empty((num_tokens, num_heads, head_dim), dtype=q.dtype, device=q.device)
    if not num_tokens:
        return out
    num_sequences, max_blocks = tables.shape
    scales = cache.data.view(torch.float32) if cache.is_scaled else cache.data
    stored = cache.data if cut.is_read_as_bytes else cache.data.view(cache.dtype)
    constants = {
        **cut.constants,
        "BLOCK_SIZE": cache.block_size, "SEQUENCES": triton.next_power_of_2(num_sequences),
        "HAS_WINDOW": form.window > 0, "HAS_SOFTCAP": form.softcap > 0, "HAS_SINKS": form.sinks is not None,
        "HAS_SLOPES": form.slopes is not None}
    factor = form.scale * math.log2(math.e)
    sinks = counts if form.sinks is None else form.sinks
    slopes = counts if form.slopes is None else form.slopes
    places = (q, q.stride(0), stored, scales, tables, max_blocks, starts, counts, num_sequences)
    if not (is_decode or num_sequences == 1 == num_tokens):
        grid = (cut.head_parts(cut.prefill_heads), -(-num_tokens // cut.prefill_tokens) + num_sequences)
        prefill_tiles[grid](
            *places, sinks, slopes, out, factor, form.window, form.softcap, **constants, **cut.prefill)
    if is_decode or num_sequences > 1 or num_tokens == 1:
        num_segments = count_segments(max_blocks * cache.block_size, gpu_form.SEGMENT)
        partials = torch.empty((num_sequences, num_segments, num_heads, head_dim), device=q.device)
        sums = torch.empty((num_sequences, num_segments, num_heads, 2), device=q.device)
        counters = _counters(triton.next_power_of_2(num_sequences * cut.head_parts(cut.decode_heads)), q.device)
        decode_segments[(cut.programs,)](
            *places, sinks, slopes, out, partials, sums, counters, num_segments, factor, form.window, form.softcap,
            **constants, **cut.decode)
    return out


def tune(phase: str, q: Tensor, cache: KvCache, tables: Tensor, starts: Tensor, counts: Tensor) -> tuning.Outcome:
    """Finds and saves the fastest configuration of "decode" or "prefill" for heads and dtypes like these."""
    shape = _shape_of(q, cache)
    gpu_form.form_of.cache_clear()

    def run(config: tuning.Config) -> Tensor:
        cut = gpu_form.make_form(shape, **{phase: config})
        return _attend(q, cache, tables, starts, counts, ScoreForm(0.1), phase == "decode", cut)

    return tuning.tune("paged_attention", shape.key(phase), gpu_form.choices(shape, phase), run)


@functools.cache
def _counters(number: int, device: torch.device) -> Tensor:
    """Returns zeros, which every launch leaves behind as it found them: the launches of a device follow each other.
    They are kept, for a graph that was captured holds their address."""
    return torch.zeros(number, dtype=torch.int32, device=device)


def _shape_of(q: Tensor, cache: KvCache) -> Shape:
    return Shape(q.dtype, cache.dtype, q.shape[1], cache.num_kv_heads, cache.head_dim, dispatch.is_deterministic(),
                 q.device, tuning.capability())
