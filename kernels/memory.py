"""Memory for what is read in each step: in pages of 2 MB, so that addresses are found without a walk for each 4 KB."""

import mmap

import torch
from torch import Tensor

_PAGE = 2 << 20
_CHUNK = 16 * _PAGE  # what is smaller shares chunks of this size, so that no page is cut
_ALIGNMENT = 64

_chunk = torch.empty(0, dtype=torch.uint8)
"""The free rest of the newest chunk."""


def huge(num_bytes: int) -> Tensor:
    """Returns uint8 [num_bytes] at a 64-byte boundary, whose contents are undefined.

    The system gets it back with the last tensor on it and, if it is less than 32 MB, with the last one on those that
    were made just before or after.
    """
    global _chunk
    if num_bytes >= _CHUNK:
        return _map(num_bytes)[:num_bytes]
    if num_bytes > len(_chunk):
        _chunk = _map(_CHUNK)
    result = _chunk[:num_bytes]
    _chunk = _chunk[-(-num_bytes // _ALIGNMENT) * _ALIGNMENT :]
    return result


def own_pages(num_bytes: int) -> Tensor:
    """Returns uint8 [num_bytes] at a page's boundary, whose contents are undefined. The system gets it back with the
    last tensor on it."""
    return _map(num_bytes)[:num_bytes]


def _map(num_bytes: int) -> Tensor:
    """Returns whole pages, at a page's boundary."""
    size = -(-num_bytes // _PAGE) * _PAGE
    memory = mmap.mmap(-1, size + _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with torch.inference_mode(False):  # or what is left of a chunk could only be written to in that mode
        whole = torch.frombuffer(memory, dtype=torch.uint8)
    start = -whole.data_ptr() % _PAGE
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE, start, size)
    return whole[start : start + size]
