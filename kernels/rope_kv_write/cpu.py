"""rope_kv_write in C++: one op after the other. A step calls the fused block of kernels/fused instead."""

from torch import Tensor

from penstock.kernels.kv_cache import KvCache
from penstock.kernels.kv_write.cpu import kv_write
from penstock.kernels.rope.cpu import rope


def rope_kv_write(
    q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, is_interleaved: bool, cache: KvCache,
    slot_mapping: Tensor,
) -> Tensor:
    q, k = rope(q, k, cos, sin, positions, is_interleaved)
    kv_write(k, v, cache, slot_mapping)
    return q
