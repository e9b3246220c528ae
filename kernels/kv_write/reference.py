"""kv_write in torch."""

from torch import Tensor

from kernels.kv_cache import KvCache
from kernels.paged_attention.reference import cache_blocks


def kv_write(k: Tensor, v: Tensor, cache: KvCache, slots: Tensor) -> None:
    places = cache_blocks(cache).permute(0, 3, 1, 2, 4)  # [block, offset, K or V, head, D]
    block, offset = slots // cache.block_size, slots % cache.block_size
    places[block, offset, 0] = k.to(cache.dtype)
    places[block, offset, 1] = v.to(cache.dtype)
