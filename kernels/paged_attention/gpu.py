"""Paged attention in Triton: gpu_decode.py for sequences with one query, gpu_prefill.py for those with more.

A block is [2, KV, block_size, D], K and V, each head's tokens adjacent; where the numbers are of 8 bits, their scales,
float32 [2, KV, block_size], follow. Nothing here looks at a value on the device.
"""

import functools
import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels import dispatch, tuning
from kernels.kv_cache import LARGEST, KvCache
from kernels.paged_attention.gpu_decode import decode_segments, merge_segments
from kernels.paged_attention.gpu_prefill import prefill_tiles
from kernels.paged_attention.gpu_tile import count_segments

SEGMENT = 256  # positions of the first segments, whose softmaxes many programs share: see gpu_tile.segment_of
_TYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
_KINDS = {torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2", torch.int8: "int8"}


def block_bytes(block_size: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
    if dtype in LARGEST and num_kv_heads * block_size * head_dim % 2:
        raise ValueError(f"block_bytes: {num_kv_heads} KV heads * block_size {block_size} * head_dim {head_dim} is "
                         f"odd, and the scales of {dtype} would not be aligned")
    return 2 * num_kv_heads * block_size * (head_dim * dtype.itemsize + 4 * (dtype in LARGEST))


def paged_attention(q: Tensor, cache: KvCache, tables: Tensor, starts: Tensor, counts: Tensor, scale: float,
                    window: int, softcap: float, sinks: Tensor | None, is_decode: bool = False) -> Tensor:
    """`is_decode`: that all counts are 1 is known, so there are no chunks to look for."""
    num_tokens, num_heads, head_dim = q.shape
    out = torch.empty((num_tokens, num_heads, head_dim), dtype=q.dtype, device=q.device)
    if not num_tokens:
        return out
    form = _form(q.dtype, cache.dtype, num_heads, cache.num_kv_heads, head_dim, dispatch.is_deterministic(), q.device,
                 tuning.capability())
    num_sequences, max_blocks = tables.shape
    scales = cache.data.view(torch.float32) if cache.is_scaled else cache.data
    stored = cache.data if form.is_read_as_bytes else cache.data.view(cache.dtype)
    constants = form.constants | {
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
        num_segments = count_segments(max_blocks * cache.block_size, SEGMENT)
        partials = torch.empty((num_sequences, num_segments, num_heads, head_dim), device=q.device)
        sums = torch.empty((num_sequences, num_segments, num_heads, 2), device=q.device)
        decode_segments[(form.programs,)](
            *places, partials, sums, num_segments, factor, window, softcap, **constants, **form.decode)
        merge_segments[(num_sequences, num_heads)](
            partials, sums, num_segments, starts, counts, counts if sinks is None else sinks, out, window,
            SEQUENCES=constants["SEQUENCES"], UNIT=constants["UNIT"], NUM_HEADS=num_heads, HEAD_DIM=head_dim,
            SEGMENT=SEGMENT, BLOCK_D=constants["BLOCK_D"], HAS_WINDOW=window > 0, HAS_SINKS=sinks is not None,
            AT_ONCE=1 if dispatch.is_interpreted() else 16, num_warps=1, enable_fp_fusion=False)
    return out


@dataclass(frozen=True, slots=True)
class _Form:
    """What the launches are given that follows from dtypes and sizes alone."""

    constants: dict[str, object]
    prefill: dict[str, object]
    decode: dict[str, object]
    prefill_heads: int
    prefill_tokens: int
    group: int
    num_kv_heads: int
    programs: int
    is_read_as_bytes: bool

    def head_parts(self, heads: int) -> int:
        return self.num_kv_heads * -(-self.group // heads)


@functools.cache
def _form(dtype: torch.dtype, cache_dtype: torch.dtype, num_heads: int, num_kv_heads: int, head_dim: int,
          is_ordered: bool, device: torch.device, capability: int) -> _Form:
    kind = _KINDS.get(cache_dtype, "float")
    if kind == "e4m3" and capability >= 89:
        kind = "e4m3 of the GPU"
    compute = dtype if cache_dtype in (dtype, *LARGEST) else torch.float32
    block_d = max(16, triton.next_power_of_2(head_dim))
    is_wide = compute == torch.float32
    tile = 2048 if is_wide else 4096 if kind != "float" and is_ordered else 8192  # larger ones spill registers
    block_n = max(16, min(64, tile // block_d))
    group = num_heads // num_kv_heads
    unit = 2.0 ** math.floor(math.log2(LARGEST[cache_dtype])) if cache_dtype in LARGEST else 1.0
    constants = {
        "KIND": kind, "UNIT": unit, "COMPUTE": _TYPES[compute], "NUM_HEADS": num_heads, "NUM_KV_HEADS": num_kv_heads,
        "HEAD_DIM": head_dim, "SEGMENT": SEGMENT, "BLOCK_D": block_d, "BLOCK_N": block_n, "ORDERED": is_ordered}
    # Tiles of 32 rows are for mma.sync, as those of decode rows are: wgmma has roundings of its own.
    is_large = block_d > 128
    num_stages = 2 if is_wide else 5  # two for K and V and two for the blocks they lie in, one to compute
    is_small = capability < 90 or is_large or kind != "float"
    block_m = (16 if is_wide else 32) if is_wide or is_ordered else 64 if is_small else 128
    heads = min(group, block_m)
    prefill = {"HEADS": heads, "TOKENS": block_m // heads, "BLOCK_M": block_m, "num_warps": 8,
               "num_stages": 3 if kind != "float" else num_stages, "enable_fp_fusion": not is_ordered}
    decode_heads = min(group, 16 if is_wide else 32)
    decode = {"HEADS": decode_heads, "BLOCK_M": max(16, triton.next_power_of_2(decode_heads)),
              "num_warps": 8 if is_wide and is_large else 4, "num_stages": num_stages,
              "enable_fp_fusion": not is_ordered}
    return _Form(constants, prefill, decode, heads, block_m // heads, group, num_kv_heads, _num_programs(device),
                 kind != "float")


@functools.cache
def _num_programs(device: torch.device) -> int:
    if device.type == "cpu":
        return 3  # the interpreter's; enough to share
    return 3 * torch.cuda.get_device_properties(device).multi_processor_count
