"""The KV cache of one layer, as the ops hand it around. Only they know how a block is laid out."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class KvCache:
    """K and V of one layer in blocks; copying or moving a block is copying a row of `data`."""

    data: Tensor  # uint8 [num_blocks, block_bytes]
    block_size: int  # tokens in a block
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype  # of the K and V inside

    @property
    def num_blocks(self) -> int:
        return self.data.shape[0]
