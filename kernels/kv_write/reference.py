"""kv_write in torch."""

import torch
from torch import Tensor

from penstock.kernels.kv_cache import LARGEST, KvCache
from penstock.kernels.paged_attention.reference import cache_blocks, cache_scales


def kv_write(k: Tensor, v: Tensor, cache: KvCache, slot_mapping: Tensor) -> None:
    block, offset = slot_mapping // cache.block_size, slot_mapping % cache.block_size
    for index, x in enumerate((k, v)):
        places = cache_blocks(cache)[:, index].transpose(1, 2)  # [block, offset, head, D]
        if cache.is_scaled:
            stored, scales = quantise(x, cache.dtype)
            # As bytes: torch does not index what has 8 bits of floating point.
            places.view(torch.uint8)[block, offset] = stored.view(torch.uint8)
            cache_scales(cache)[:, index].transpose(1, 2)[block, offset] = scales.view(torch.uint8)
        else:
            places[block, offset] = x.to(cache.dtype)


def quantise(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Returns x [..., D] in 8 bits, and its scales, float32 [..., 1], which kernels/kv_cache.py defines."""
    x, largest = x.float(), LARGEST[dtype]
    scales = x.abs().amax(dim=-1, keepdim=True) / largest
    scales = scales.where(scales != 0, 1.0)
    stored = (x / scales).clamp(-largest, largest)
    if dtype == torch.int8:
        stored = stored.round().nan_to_num(0.0)  # of what is not finite the scale is not either
    return stored.to(dtype), scales
