"""rope_kv_write in torch: one op after the other."""

from torch import Tensor

from penstock.kernels.kv_cache import KvCache
from penstock.kernels.kv_write.reference import kv_write
from penstock.kernels.rope.reference import rope


def rope_kv_write(
    q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, is_interleaved: bool, cache: KvCache,
    slot_mapping: Tensor,
) -> Tensor:
    q, k = rope(q, k, cos, sin, positions, is_interleaved)
    kv_write(k, v, cache, slot_mapping)
    return q
