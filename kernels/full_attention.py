"""Attends without a mask and without a cache of its own: encoders and images, whose tokens see one another.

It is composed of the ops of the paged cache, so all devices have it, with their tiles: keys and values are written into
blocks that live as long as the call, and each query reads them from the end of its sequence, as a decode row does.
"""

import torch
from torch import Tensor

from penstock.kernels.checks import FLOATS, check_axes, check_rows, check_tensor
from penstock.kernels.kv_write import kv_write
from penstock.kernels.paged_attention import allocate_cache, paged_attention

BLOCK_SIZE = 16


def full_attention(q: Tensor, k: Tensor, v: Tensor, counts: Tensor, *, scale: float) -> Tensor:
    """Attends from every query over all keys and values of its own sequence: [T, H, D], dtype of q.

    q       [T, H, D]   float32, bfloat16 or float16; the sequences' queries one after the other
    k, v    [T, KV, D]  dtype of q. H is a multiple of KV; query head h reads KV head h // (H // KV)
    counts  [S]         int32; tokens of each sequence, their sum is T
    scale               factor of q·k

    A sequence's bits are its own: each sum has one order, whatever else is in the step. Raises ValueError for shapes or
    dtypes that do not fit together; a GPU does not look at the values of counts.
    """
    op = "full_attention"
    check_axes(op, "q", q, "T, H, D")
    check_axes(op, "k", k, "T, KV, D")
    check_axes(op, "counts", counts, "S")
    num_tokens, _, head_dim = q.shape
    shape = (num_tokens, k.shape[1], head_dim)
    check_rows(op, "q", q, q.shape, *FLOATS)
    check_rows(op, "k", k, shape, q.dtype)
    check_rows(op, "v", v, shape, q.dtype)
    check_tensor(op, "counts", counts, counts.shape, torch.int32)
    if num_tokens == 0:
        return torch.empty_like(q)
    num_sequences, counts = len(counts), counts.long()
    cache = allocate_cache(num_tokens // BLOCK_SIZE + num_sequences, block_size=BLOCK_SIZE, num_kv_heads=shape[1],
                           head_dim=head_dim, dtype=q.dtype, device=q.device)
    num_blocks = (counts + BLOCK_SIZE - 1) // BLOCK_SIZE
    first_blocks, first_tokens = num_blocks.cumsum(0) - num_blocks, counts.cumsum(0) - counts
    owner = torch.repeat_interleave(counts, output_size=num_tokens)  # the sequence of each token
    position = torch.arange(num_tokens, device=q.device) - first_tokens[owner]
    kv_write(k, v, cache, first_blocks[owner] * BLOCK_SIZE + position)
    width = torch.arange(-(-num_tokens // BLOCK_SIZE), device=q.device)
    tables = (first_blocks[owner, None] + width).int()
    ones = torch.ones(num_tokens, dtype=torch.int32, device=q.device)
    return paged_attention(q, cache, tables, (counts[owner] - 1).int(), ones, scale=scale, is_decode=True)
