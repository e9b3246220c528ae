"""Attends for a ragged batch over the paged KV cache (Kwon et al. 2023), and allocates the cache."""

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.checks import FLOATS, check_axes, check_rows, check_tensor
from penstock.kernels.kv_cache import LARGEST, KvCache
from penstock.kernels.paged_attention import reference
from penstock.kernels.paged_attention.score_form import ScoreForm

_block_bytes = dispatch.choose(reference.block_bytes)
_paged_attention = dispatch.choose(reference.paged_attention)


def block_bytes(*, block_size: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
    """Returns the bytes of a block of one layer: `block_size` tokens of K and V, and their scales if they have 8 bits.

    dtype  float32, bfloat16 or float16; float8_e4m3fn or float8_e5m2, but not on a processor; int8

    Raises ValueError for other dtypes.
    """
    _check_dtype("block_bytes", dtype)
    return _block_bytes(block_size, num_kv_heads, head_dim, dtype)


def allocate_cache(
    num_blocks: int,
    *,
    block_size: int,
    num_kv_heads: int,
    head_dim: int,
    dtype: torch.dtype,
    device: torch.device | str,
    memory: Tensor | None = None,
) -> KvCache:
    """Allocates `num_blocks` blocks of one layer, and does not clear them: what was never written is never used.

    memory  [num_blocks * block_bytes]  uint8; where the blocks are to be, instead of in memory that is new
    """
    size = block_bytes(block_size=block_size, num_kv_heads=num_kv_heads, head_dim=head_dim, dtype=dtype)
    data = torch.empty(num_blocks, size, dtype=torch.uint8, device=device) if memory is None else memory.view(-1, size)
    return KvCache(data, block_size, num_kv_heads, head_dim, dtype)


def paged_attention(
    q: Tensor,
    cache: KvCache,
    tables: Tensor,
    starts: Tensor,
    counts: Tensor,
    *,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    slopes: Tensor | None = None,
    is_decode: bool = False,
) -> Tensor:
    """Attends causally from every query over the keys and values of its own sequence: [T, H, D], dtype of q.

    q       [T, H, D]        float32, bfloat16 or float16; the sequences' queries one after the other
    cache   KV heads, D      K and V of these tokens included: kv_write runs first. H is a multiple of the KV heads;
                             query head h reads KV head h // (H // KV)
    tables  [S, max_blocks]  int32; a sequence's blocks by position. Entries past its length may be anything
    starts  [S]              int32; position of each sequence's first query
    counts  [S]              int32; queries of each sequence, their sum is T
    scale                    factor of q·k
    window                   a query at position p sees positions max(0, p - window + 1) to p; 0 is no window
    softcap                  c > 0 replaces a score s by c * tanh(s / c)
    sinks   [H]              float32; one more logit per head in the denominator, without a value
    slopes  [H]              float32; a query at p adds slope * (s - p) to the score of the key at s (ALiBi, Press et
                             al. 2021)
    is_decode                all counts are 1, which is for the caller to know: it saves a GPU a launch

    Positions that a query does not see never reach its output, not even as 0 * NaN. Raises ValueError for shapes,
    dtypes or counts that do not fit together; a GPU does not look at the values of starts, counts and tables.
    """
    op = "paged_attention"
    check_axes(op, "q", q, "T, H, D")
    check_axes(op, "tables", tables, "S, max_blocks")
    num_tokens, num_heads, _ = q.shape
    num_sequences = tables.shape[0]
    check_rows(op, "q", q, (num_tokens, num_heads, cache.head_dim), *FLOATS)
    check_tensor(op, "tables", tables, tables.shape, torch.int32)
    check_tensor(op, "starts", starts, (num_sequences,), torch.int32)
    check_tensor(op, "counts", counts, (num_sequences,), torch.int32)
    if num_heads % cache.num_kv_heads:
        raise ValueError(f"{op}: q {list(q.shape)} has {num_heads} heads, no multiple of {cache.num_kv_heads} KV heads")
    for name, numbers in (("sinks", sinks), ("slopes", slopes)):
        if numbers is not None:
            check_tensor(op, name, numbers, (num_heads,), torch.float32)
    if window < 0 or softcap < 0:
        raise ValueError(f"{op}: window {window} and softcap {softcap} must not be negative")
    if is_decode and num_tokens != num_sequences:
        raise ValueError(f"{op}: q {list(q.shape)} has {num_tokens} rows, a decode step {num_sequences}")
    form = ScoreForm(scale, window, softcap, sinks, slopes)
    return _paged_attention(q, cache, tables, starts, counts, form, is_decode)


def _check_dtype(op: str, dtype: torch.dtype) -> None:
    known = (*FLOATS, *LARGEST)
    if dtype not in known:
        raise ValueError(f"{op}: dtype {dtype} is none of {', '.join(str(one) for one in known)}")
