"""`rope`, and `kv_write` of the K that it gives, in one op: on a GPU in one launch."""

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.checks import FLOATS, check_axes, check_rotation, check_rows, check_tensor
from penstock.kernels.kv_cache import KvCache
from penstock.kernels.rope_kv_write import reference

_rope_kv_write = dispatch.choose(reference.rope_kv_write)


def rope_kv_write(
    q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, is_interleaved: bool, cache: KvCache,
    slot_mapping: Tensor,
) -> Tensor:
    """Returns q rotated, and puts K rotated and V into the cache: the bits of `rope` and `kv_write`, whose arguments
    these are.

    q             [T, H, D]    float32, bfloat16 or float16; the rows of tokens may lie apart
    k, v          [T, KV, D]   the same dtype, likewise
    cos, sin      [P, R / 2]   float32, a row per position, R ≤ D
    positions     [T]          int64, each below P
    cache                      one layer's cache of KV heads of size D, changed in place
    slot_mapping  [T]          int64, all different: block * block_size + offset of each token

    Raises ValueError for shapes or dtypes that do not fit together.
    """
    op = "rope_kv_write"
    check_axes(op, "q", q, "T, H, D")
    check_axes(op, "cos", cos, "P, R / 2")
    num_tokens, num_heads, _ = q.shape
    check_rows(op, "q", q, (num_tokens, num_heads, cache.head_dim), *FLOATS)
    for name, rows in (("k", k), ("v", v)):
        check_rows(op, name, rows, (num_tokens, cache.num_kv_heads, cache.head_dim), q.dtype)
    check_tensor(op, "cos", cos, cos.shape, torch.float32)
    check_tensor(op, "sin", sin, cos.shape, torch.float32)
    check_rotation(op, cos, cache.head_dim)
    for name, column in (("positions", positions), ("slot_mapping", slot_mapping)):
        check_tensor(op, name, column, (num_tokens,), torch.int64)
    return _rope_kv_write(q, k, v, cos, sin, positions, is_interleaved, cache, slot_mapping)
