"""Paged attention in C++: csrc/attention.cpp, over the layout of csrc/kv_layout.h."""

import ctypes
from typing import NoReturn

import torch
from torch import Tensor

from penstock.kernels import native
from penstock.kernels.kv_cache import LARGEST, KvCache
from penstock.kernels.paged_attention.lengths import check_lengths
from penstock.kernels.paged_attention.score_form import ScoreForm

LANES = 16
MAX_HEAD_DIM = 4096  # a row has to fit into a thread's memory


def block_bytes(block_size: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
    """Counts heads rounded up to whole registers."""
    if dtype not in native.DTYPES:
        raise ValueError(f"block_bytes: a KV cache of {dtype} is for GPUs, a processor's kernels have torch.int8")
    if head_dim > MAX_HEAD_DIM:
        raise ValueError(f"block_bytes: head_dim {head_dim} is larger than {MAX_HEAD_DIM}")
    scale_bytes = torch.float32.itemsize if dtype in LARGEST else 0
    return 2 * num_kv_heads * block_size * (-(-head_dim // LANES) * LANES * dtype.itemsize + scale_bytes)


def paged_attention(
    q: Tensor, cache: KvCache, tables: Tensor, starts: Tensor, counts: Tensor, form: ScoreForm, is_decode: bool
) -> Tensor:
    num_tokens, num_heads, head_dim = q.shape
    num_sequences, max_blocks = tables.shape
    out = torch.empty((num_tokens, num_heads, head_dim), dtype=q.dtype)
    data, status = cache.data, ctypes.c_int64()
    native.library.paged_attention(
        out.data_ptr(), q.data_ptr(), q.stride()[0], native.DTYPES[q.dtype], data.data_ptr(),
        native.DTYPES[cache.dtype], data.shape[0], cache.block_size, cache.num_kv_heads, head_dim, tables.data_ptr(),
        max_blocks, starts.data_ptr(), counts.data_ptr(), num_sequences, num_tokens, num_heads,
        form.scale, form.window, form.softcap, native.address(form.sinks), native.address(form.slopes),
        ctypes.byref(status))
    if status.value:
        refuse_tables(q, cache, tables, starts, counts)
    return out


def refuse_tables(q: Tensor, cache: KvCache, tables: Tensor, starts: Tensor, counts: Tensor) -> NoReturn:
    """Raises the ValueError that says why nothing was computed."""
    check_lengths(q, cache, tables, starts.tolist(), counts.tolist())
    raise ValueError(f"paged_attention: tables name blocks that are not among the cache's {cache.num_blocks}")
