"""The attention half of a block in one call of csrc/layers.cpp."""

import ctypes
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from penstock.kernels import native
from penstock.kernels.kv_cache import KvCache
from penstock.kernels.kv_write.cpu import refuse_slots
from penstock.kernels.native import DTYPES, address, dtype_of
from penstock.kernels.paged_attention.cpu import refuse_tables

if TYPE_CHECKING:
    from penstock.kernels.attention_layer import AttentionWeights, Tokens

SLOT_STATUS = 3
_Layer, _Tokens = native.structure("AttentionLayer"), native.structure("StepTokens")


def prepare_tokens(tokens: "Tokens") -> ctypes.Structure:
    return _Tokens(
        num_tokens=len(tokens.positions), num_sequences=len(tokens.starts), max_blocks=tokens.tables.shape[1],
        positions=address(tokens.positions), slots=address(tokens.slots), tables=address(tokens.tables),
        starts=address(tokens.starts), counts=address(tokens.counts))


def prepare_weights(weights: "AttentionWeights") -> Any:
    w = weights
    q_norm, k_norm = w.head_norms or (None, None)
    return _Layer(
        width=w.qkv.in_features, num_heads=w.num_heads, num_kv_heads=w.num_kv_heads, head_dim=w.head_dim,
        half=w.cos.shape[1], window=w.window, scale=w.scale, eps=w.eps,
        norm=address(w.norm), norm_dtype=dtype_of(w.norm),
        qkv=address(w.qkv.data), qkv_bias=address(w.qkv_bias), qkv_bias_dtype=dtype_of(w.qkv_bias),
        q_norm=address(q_norm), q_norm_dtype=dtype_of(q_norm), k_norm=address(k_norm), k_norm_dtype=dtype_of(k_norm),
        cos=address(w.cos), sin=address(w.sin),
        output=address(w.output.data), output_bias=address(w.output_bias), output_bias_dtype=dtype_of(w.output_bias))


def attention_layer(
    weights: "AttentionWeights", x: Tensor, delta: Tensor | None, tokens: "Tokens", cache: KvCache, partial: bool
) -> tuple[Tensor, Tensor]:
    total = x if delta is None else torch.empty_like(x)
    out = torch.empty(x.shape, dtype=torch.float32 if partial else x.dtype)
    data, status = cache.data, ctypes.c_int64()
    native.library.attention_layer(
        ctypes.addressof(weights.prepared), ctypes.addressof(tokens.prepared), DTYPES[x.dtype], data.data_ptr(),
        DTYPES[cache.dtype], data.shape[0], cache.block_size, x.data_ptr(), address(delta), total.data_ptr(),
        out.data_ptr(), partial, ctypes.addressof(status))
    if status.value == SLOT_STATUS:
        refuse_slots(tokens.slots, cache)
    if status.value:
        refuse_tables(x, cache, tokens.tables, tokens.starts, tokens.counts)
    return total, out
