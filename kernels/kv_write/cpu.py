"""kv_write in C++: csrc/kv_write.cpp, in the layout of csrc/kv_layout.h."""

import ctypes
from typing import NoReturn

from torch import Tensor

from penstock.kernels import native
from penstock.kernels.kv_cache import KvCache


def kv_write(k: Tensor, v: Tensor, cache: KvCache, slot_mapping: Tensor) -> None:
    num_tokens, num_kv_heads, head_dim = k.shape
    data, status = cache.data, ctypes.c_int64()
    num_blocks = data.shape[0]
    native.library.kv_write(
        k.data_ptr(), k.stride()[0], v.data_ptr(), v.stride()[0], native.DTYPES[k.dtype], data.data_ptr(),
        native.DTYPES[cache.dtype], num_blocks, cache.block_size, num_kv_heads, head_dim, slot_mapping.data_ptr(),
        num_tokens, ctypes.byref(status))
    if status.value:
        refuse_slot_mapping(slot_mapping, cache)


def refuse_slot_mapping(slot_mapping: Tensor, cache: KvCache) -> NoReturn:
    """Raises the ValueError that says why nothing was written."""
    raise ValueError(f"kv_write: slot_mapping {slot_mapping.tolist()} does not lie within {cache.num_blocks} blocks of "
                     f"{cache.block_size}")
