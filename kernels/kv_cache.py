"""The KV cache of one layer, which the ops hand around. Only they know how a block is laid out."""

from dataclasses import dataclass

import torch
from torch import Tensor

LARGEST = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0, torch.int8: 127.0}
"""The numbers of 8 bits that a cache may hold, and the largest of each.

K and V of a token and head are then divided by a scale of their own, float32: the largest of their magnitudes divided
by the largest number, or 1 where that is 0. It follows from the token alone, so no answer depends on its neighbours.
"""


@dataclass(frozen=True, slots=True)
class KvCache:
    """Holds K and V of one layer in blocks; to copy or move a block, copy a row of `data`."""

    data: Tensor  # uint8 [num_blocks, block_bytes]
    block_size: int  # tokens in a block
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype  # of the K and V inside

    @property
    def num_blocks(self) -> int:
        return self.data.shape[0]

    @property
    def is_scaled(self) -> bool:
        """Tells whether K and V are numbers of 8 bits with scales beside them."""
        return self.dtype in LARGEST
