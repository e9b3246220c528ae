"""Paged attention in torch: float64 from the cache to the output, one rounding at the end.

A block is [2, KV, block_size, D]: K and V, each head's tokens adjacent. So one gather of (block, K or V, head) pieces
gives every sequence's keys and values as contiguous matrices. Of 8 bits they have scales, which follow in the block:
float32 [2, KV, block_size].
"""

import torch
from torch import Tensor

from penstock.kernels.kv_cache import LARGEST, KvCache
from penstock.kernels.paged_attention.lengths import check_lengths
from penstock.kernels.paged_attention.score_form import ScoreForm

# Elements in float64 at a time, 2 MiB: larger ones leave the processor's cache, and malloc hands their pages back to
# the system and takes them again on every call, which was measured to take up to twice as long.
MAX_GATHERED = 1 << 18  # K and V of the sequences computed together
MAX_SCORES = 1 << 18  # scores of the queries computed together


def block_bytes(block_size: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
    scale_bytes = torch.float32.itemsize if dtype in LARGEST else 0
    return 2 * num_kv_heads * block_size * (head_dim * dtype.itemsize + scale_bytes)


def cache_blocks(cache: KvCache) -> Tensor:
    """Returns the cache as [num_blocks, 2, KV, block_size, D], a view in its dtype."""
    size = 2 * cache.num_kv_heads * cache.block_size * cache.head_dim * cache.dtype.itemsize
    shape = (cache.num_blocks, 2, cache.num_kv_heads, cache.block_size, cache.head_dim)
    return cache.data[:, :size].view(cache.dtype).view(shape)


def cache_scales(cache: KvCache) -> Tensor:
    """Returns the scales of a cache of 8 bits, a view of their bytes: uint8 [num_blocks, 2, KV, block_size, 4]."""
    shape = (cache.num_blocks, 2, cache.num_kv_heads, cache.block_size, torch.float32.itemsize)
    return cache.data[:, shape[1] * shape[2] * shape[3] * cache.head_dim :].view(shape)


def paged_attention(
    q: Tensor, cache: KvCache, tables: Tensor, starts: Tensor, counts: Tensor, form: ScoreForm, is_decode: bool
) -> Tensor:
    """Computes sequences with equally many queries together, their keys padded to the longest's."""
    all_starts, all_counts = starts.tolist(), counts.tolist()
    check_lengths(q, cache, tables, all_starts, all_counts)
    first_row = counts.cumsum(0) - counts
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    for count in sorted(set(all_counts) - {0}):
        members = [sequence for sequence, own in enumerate(all_counts) if own == count]
        members.sort(key=lambda sequence: all_starts[sequence])
        for batch in _batches(members, all_starts, count, 2 * cache.num_kv_heads * cache.head_dim):
            some = torch.tensor(batch, device=q.device)
            rows = first_row[some, None] + torch.arange(count, device=q.device)
            queries = starts[some, None] + torch.arange(count, device=q.device)
            length = all_starts[batch[-1]] + count
            keys, values = _gather(cache, tables[some], queries, length, form)
            out[rows] = _attend(q[rows], keys, values, queries, length, form).to(q.dtype)
    return out


def _batches(members: list[int], starts: list[int], count: int, width: int) -> list[list[int]]:
    """Cuts `members`, ordered by length, so that the gathered K and V of each part stay under MAX_GATHERED."""
    batches: list[list[int]] = [[]]
    for sequence in members:
        if batches[-1] and (len(batches[-1]) + 1) * (starts[sequence] + count) * width > MAX_GATHERED:
            batches.append([])
        batches[-1].append(sequence)
    return batches


def _gather(cache: KvCache, tables: Tensor, queries: Tensor, length: int, form: ScoreForm) -> tuple[Tensor, Tensor]:
    """Returns K and V, float64 [S, KV, L, D], L = `length` in whole blocks; zeros where no query [S, count] sees."""
    num_blocks = -(-length // cache.block_size)
    ordinal = torch.arange(num_blocks * cache.block_size, device=tables.device)
    blocks = torch.where(ordinal[:: cache.block_size] <= queries[:, -1:], tables[:, :num_blocks], 0)
    gathered = (_gather_scaled if cache.is_scaled else _gather_plain)(cache, blocks)

    seen = ordinal <= queries[:, -1:]
    if form.window:
        seen &= ordinal > queries[:, :1] - form.window
    sequence, position = seen.logical_not_().nonzero(as_tuple=True)
    gathered[:, sequence, :, position] = 0.0
    keys, values = gathered.double()
    return keys, values


def _gather_plain(cache: KvCache, blocks: Tensor) -> Tensor:
    """Returns [2, S, KV, L, D], in the cache's dtype, of `blocks` [S, L / block_size]."""
    heads = cache.num_kv_heads
    pieces = torch.arange(2 * heads, device=blocks.device).view(2, 1, heads, 1) + 2 * heads * blocks[:, None, :]
    pool = cache_blocks(cache).view(cache.num_blocks * 2 * heads, cache.block_size * cache.head_dim)
    return pool.index_select(0, pieces.flatten()).view(2, len(blocks), heads, -1, cache.head_dim)


def _gather_scaled(cache: KvCache, blocks: Tensor) -> Tensor:
    """Returns the numbers of `_gather_plain` times their scales: float64."""
    def gather(pool: Tensor) -> Tensor:
        return pool[blocks].permute(2, 0, 3, 1, 4, 5).flatten(3, 4)

    stored = gather(cache_blocks(cache).view(torch.uint8)).view(cache.dtype)
    return stored.double() * gather(cache_scales(cache)).view(torch.float32).double()


def _attend(q: Tensor, keys: Tensor, values: Tensor, queries: Tensor, length: int, form: ScoreForm) -> Tensor:
    """Attends from q [S, count, H, D] at positions `queries` [S, count], some at a time: float64 [S, count, H, D]."""
    num_sequences, count, num_heads, _ = q.shape
    tile = max(1, MAX_SCORES // (num_sequences * num_heads * length))
    is_finite = count == 1 or bool(values.isfinite().all())
    parts = []
    for first in range(0, count, tile if is_finite else 1):
        some = slice(first, first + (tile if is_finite else 1))
        end = length - max(0, count - some.stop)
        distances = queries[:, some, None] - torch.arange(end, device=q.device)
        visible = (distances >= 0) & (distances < (form.window or end))
        tile_values = values[:, :, :end]
        if not is_finite:  # an Inf or NaN of a later position must not meet this query's 0
            tile_values = tile_values.where(visible[:, :, :, None], 0.0)
        parts.append(_attend_tile(q[:, some], keys[:, :, :end], tile_values, distances, visible, form))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _attend_tile(
    q: Tensor, keys: Tensor, values: Tensor, distances: Tensor, visible: Tensor, form: ScoreForm
) -> Tensor:
    """Attends from q [S, n, H, D] over keys and values [S, KV, L, D], which are at `distances` [S, n, L] before the
    queries, seeing the `visible` [S, n, L]: [S, n, H, D]."""
    num_sequences, count, num_heads, head_dim = q.shape
    num_kv_heads, length = keys.shape[1:3]
    share = num_heads // num_kv_heads
    grouped = q.double().view(num_sequences, count, num_kv_heads, share, head_dim).permute(0, 2, 3, 1, 4)
    grouped = grouped.reshape(num_sequences, num_kv_heads, share * count, head_dim)

    scores = (grouped @ keys.transpose(2, 3)).mul_(form.scale)
    if form.softcap:
        scores.div_(form.softcap).tanh_().mul_(form.softcap)
    scores = scores.view(num_sequences, num_kv_heads, share, count, length)
    if form.slopes is not None:
        scores -= form.slopes.double().view(num_kv_heads, share, 1, 1) * distances[:, None, None]
    scores.masked_fill_(~visible[:, None, None], -torch.inf)
    top = scores.amax(dim=-1, keepdim=True)
    weights = scores.sub_(top).exp_()
    total = weights.sum(dim=-1, keepdim=True)
    if form.sinks is not None:
        total += (form.sinks.double().view(num_kv_heads, share, 1, 1) - top).exp_()

    out = weights.view(num_sequences, num_kv_heads, share * count, length) @ values
    out = out.view(num_sequences, num_kv_heads, share, count, head_dim).div_(total)
    return out.permute(0, 3, 1, 2, 4).reshape(num_sequences, count, num_heads, head_dim)
