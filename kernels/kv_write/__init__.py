"""Writes a step's K and V into the paged cache."""

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.checks import FLOATS, check_axes, check_rows, check_tensor
from penstock.kernels.kv_cache import KvCache
from penstock.kernels.kv_write import reference

_kv_write = dispatch.choose(reference.kv_write)


def kv_write(k: Tensor, v: Tensor, cache: KvCache, slot_mapping: Tensor) -> None:
    """Puts each token's K and V into its place in the cache, rounded to the cache's dtype.

    k, v          [T, KV, D]  float32, bfloat16 or float16
    cache                     one layer's cache of KV heads of size D, changed in place
    slot_mapping  [T]         int64, all different: block * block_size + offset of each token

    Raises ValueError for shapes or dtypes that do not fit together.
    """
    op = "kv_write"
    check_axes(op, "k", k, "T, KV, D")
    shape = (k.shape[0], cache.num_kv_heads, cache.head_dim)
    check_rows(op, "k", k, shape, *FLOATS)
    check_rows(op, "v", v, shape, k.dtype)
    check_tensor(op, "slot_mapping", slot_mapping, (k.shape[0],), torch.int64)
    _kv_write(k, v, cache, slot_mapping)
