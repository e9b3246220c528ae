"""A paged cache filled the hard way for tests: blocks in random order, NaN wherever nothing was written."""

from dataclasses import dataclass

import torch
from torch import Tensor

from penstock.kernels.kv_cache import LARGEST, KvCache
from penstock.kernels.kv_write import kv_write
from penstock.kernels.paged_attention import allocate_cache, paged_attention


@dataclass(frozen=True)
class Scene:
    """Sequences in one cache. Each list has an entry per sequence."""

    cache: KvCache
    tables: Tensor  # int32 [S, max_blocks]; entries past the length are no block ids
    q: list[Tensor]  # [length, H, D], also for positions that are never asked
    k: list[Tensor]  # [length, KV, D]
    v: list[Tensor]

    def attend(self, parts: list[tuple[int, int, int]], **form) -> list[Tensor]:
        """One call for parts (sequence, start, count): the output of each."""
        index, starts, counts = (torch.tensor(column) for column in zip(*parts, strict=True))
        q = torch.cat([self.q[sequence][start : start + count] for sequence, start, count in parts])
        out = paged_attention(q, self.cache, self.tables[index], starts.int(), counts.int(), **form)
        return list(out.split(counts.tolist()))


def scene(
    lengths: list[int],
    *,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    head_dim: int = 32,
    dtype: torch.dtype = torch.float32,
    cache_dtype: torch.dtype | None = None,
    block_size: int = 16,
    seed: int = 0,
) -> Scene:
    generator = torch.Generator().manual_seed(seed)
    needed = [-(-length // block_size) for length in lengths]
    cache = allocate_cache(
        sum(needed) + 3,
        block_size=block_size,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        dtype=cache_dtype or dtype,
        device="cpu",
    )
    cache.data.fill_(0xFF)  # NaN in every format, and in that of scales
    blocks = torch.randperm(cache.num_blocks, generator=generator).int()
    tables = torch.full((len(lengths), max(needed) + 2), 2**31 - 1, dtype=torch.int32)
    q, k, v = [], [], []
    for sequence, length in enumerate(lengths):
        own, blocks = blocks.split([needed[sequence], len(blocks) - needed[sequence]])
        tables[sequence, : len(own)] = own
        q.append(torch.randn(length, num_heads, head_dim, generator=generator).to(dtype))
        k.append(torch.randn(length, num_kv_heads, head_dim, generator=generator).to(dtype))
        v.append(torch.randn(length, num_kv_heads, head_dim, generator=generator).to(dtype))
        kv_write(k[-1], v[-1], cache, slot_mapping(own, torch.arange(length), block_size))
    return Scene(cache, tables, q, k, v)


def held(x: Tensor, dtype: torch.dtype) -> Tensor:
    """What a cache of `dtype` holds of K or V [T, KV, D], float64."""
    if dtype not in LARGEST:
        return x.to(dtype).double()
    largest, heads = LARGEST[dtype], x.float().flatten(0, 1)
    top = heads.abs().amax(dim=1, keepdim=True)
    scales = (top / largest).where(top != 0, 1.0)
    stored = (heads / scales).clamp(-largest, largest)
    return ((stored if dtype.is_floating_point else stored.round()).to(dtype).double() * scales.double()).view(x.shape)


def slot_mapping(blocks: Tensor, positions: Tensor, block_size: int) -> Tensor:
    return blocks.long()[positions // block_size] * block_size + positions % block_size
