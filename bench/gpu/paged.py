"""Sequences in a paged cache on the device, blocks in random order, and what attention over them is in float64."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from penstock.bench.gpu.inputs import randn
from penstock.kernels import dispatch
from penstock.kernels.kv_cache import LARGEST, KvCache
from penstock.kernels.kv_write import kv_write
from penstock.kernels.paged_attention import allocate_cache, paged_attention
from penstock.kernels.paged_attention.score_form import ScoreForm

BLOCK_SIZE = 16
NO_BLOCK = 2**31 - 1


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

    def __init__(self, lengths: Sequence[int], heads: Heads, dtype: torch.dtype, cache_dtype: torch.dtype | None = None,
                 scale: float | None = None) -> None:
        self.lengths = list(lengths)
        self.heads = heads
        self.dtype = dtype
        self.scale = heads.size**-0.5 if scale is None else scale
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

    def attend(self, q: Tensor, counts: Sequence[int], sequences: Sequence[int] | None = None,
               ends: Sequence[int] | None = None, **form: Any) -> Tensor:
        """Returns the attention of the last queries of some sequences, or of those before `ends`."""
        chosen = range(len(self.lengths)) if sequences is None else sequences
        ends = [self.lengths[sequence] for sequence in chosen] if ends is None else ends
        starts = [end - count for end, count in zip(ends, counts, strict=True)]
        device = dispatch.device()
        return paged_attention(
            q, self.cache, self.tables[torch.tensor(list(chosen), device=device)],
            torch.tensor(starts, dtype=torch.int32, device=device),
            torch.tensor(list(counts), dtype=torch.int32, device=device), scale=self.scale, **form)

    def exact(self, q: Tensor, counts: Sequence[int], **keys: Any) -> Tensor:
        """Returns the attention in float64, over K and V as the cache's dtype holds them."""
        k, v = (_held(x, self.cache.dtype) for x in (self.k, self.v))
        form = ScoreForm(self.scale, **keys)
        parts = [
            self._exact(own_q.double(), own_k, own_v, form)
            for own_q, own_k, own_v in zip(q.split(list(counts)), k.split(self.lengths), v.split(self.lengths),
                                           strict=True)]
        return torch.cat(parts)

    def _exact(self, q: Tensor, k: Tensor, v: Tensor, form: ScoreForm) -> Tensor:
        out = torch.empty_like(q)
        key = torch.arange(len(k), device=q.device)
        query = key[len(k) - len(q):, None]
        hidden = (key > query) | (key <= query - form.window) if form.window else key > query
        share = self.heads.queries // self.heads.keys
        for head in range(self.heads.queries):
            scores = q[:, head] @ k[:, head // share].T * form.scale
            scores = form.softcap * torch.tanh(scores / form.softcap) if form.softcap else scores
            if form.slopes is not None:
                scores = scores + form.slopes[head].double() * (key - query)
            scores = scores.masked_fill(hidden, -torch.inf)
            if form.sinks is not None:
                scores = torch.cat([scores, form.sinks[head].double().expand(len(q), 1)], dim=1)
            out[:, head] = torch.softmax(scores, dim=1)[:, : len(k)] @ v[:, head // share]
        return out


def _held(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns x [T, KV, D] as a cache of this dtype gives it back, in float64."""
    if dtype not in LARGEST:
        return x.to(dtype).double()
    largest = x.float().abs().amax(dim=-1, keepdim=True)
    scale = torch.where(largest == 0, 1.0, largest / LARGEST[dtype])
    scaled = x.float() / scale
    return (scaled.round() if dtype == torch.int8 else scaled).to(dtype).double() * scale.double()
