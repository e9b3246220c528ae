"""The arguments of ops, on the device: numbers, and sequences in a paged cache, whose blocks are in random order."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.kv_cache import KvCache
from penstock.kernels.kv_write import kv_write
from penstock.kernels.paged_attention import allocate_cache
from penstock.kernels.sample import SampleParameters

BLOCK_SIZE = 16
NO_BLOCK = 2**31 - 1


def randn(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, device=dispatch.device()).to(dtype)


def moved(parameters: SampleParameters) -> SampleParameters:
    """Returns the same parameters, copied to the device."""
    return SampleParameters(**{name: column.to(dispatch.device()) for name, column in parameters.columns.items()})


@dataclass(frozen=True)
class Heads:
    queries: int
    keys: int
    size: int

    @classmethod
    def of(cls, model: dict[str, Any]) -> "Heads":
        return cls(model["num_attention_heads"], model["num_key_value_heads"], model["head_dim"])


class Paged:
    """K and V of sequences of these lengths, random. What was not written is NaN, what is no block's is no number of
    one."""

    def __init__(self, lengths: Sequence[int], heads: Heads, dtype: torch.dtype,
                 cache_dtype: torch.dtype | None = None) -> None:
        self.lengths = list(lengths)
        self.heads = heads
        self.dtype = dtype
        self.scale = heads.size**-0.5
        device = dispatch.device()
        needed = [-(-length // BLOCK_SIZE) for length in lengths]
        self.cache: KvCache = allocate_cache(
            sum(needed) + 1, block_size=BLOCK_SIZE, num_kv_heads=heads.keys, head_dim=heads.size,
            dtype=cache_dtype or dtype, device=device)
        self.cache.data.fill_(0xFF)
        blocks = torch.randperm(self.cache.num_blocks, device=device)[: sum(needed)].split(needed)
        self.tables = torch.full((len(lengths), max(needed)), NO_BLOCK, dtype=torch.int32, device=device)
        self.k, self.v = randn(2, sum(lengths), heads.keys, heads.size, dtype=dtype)
        slot_mapping = []
        for row, own, length in zip(self.tables, blocks, lengths, strict=True):
            row[: len(own)] = own
            positions = torch.arange(length, device=device)
            slot_mapping.append(own[positions // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE)
        kv_write(self.k, self.v, self.cache, torch.cat(slot_mapping))

    def queries(self, counts: Sequence[int]) -> Tensor:
        return randn(sum(counts), self.heads.queries, self.heads.size, dtype=self.dtype)
