"""Checks the values in paged_attention's tensors, beside their shapes."""

from torch import Tensor

from penstock.kernels.kv_cache import KvCache


def check_lengths(q: Tensor, cache: KvCache, tables: Tensor, starts: list[int], counts: list[int]) -> None:
    """Raises ValueError unless the counts are those of q's rows and the tables hold each sequence."""
    if sum(counts) != q.shape[0] or min(counts, default=0) < 0:
        raise ValueError(f"paged_attention: q has {q.shape[0]} rows, counts are {counts} with sum {sum(counts)}")
    longest = max((start + count for start, count in zip(starts, counts, strict=True)), default=0)
    if min(starts, default=0) < 0 or longest > tables.shape[1] * cache.block_size:
        raise ValueError(
            f"paged_attention: tables {list(tables.shape)} hold {tables.shape[1] * cache.block_size} positions "
            f"in blocks of {cache.block_size}; starts {starts} and counts {counts} need 0 to {longest}"
        )
