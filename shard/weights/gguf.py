"""Linears in GGUF's blocks."""

from collections.abc import Sequence

import torch
from torch import Tensor

from penstock.kernels.quantised_linear.activations import Activations
from penstock.kernels.quantised_linear.coded_weight import CodedWeight
from penstock.shard.weights.coded import CodedFormat
from penstock.shard.weights.format import LinearPart
from penstock.shard.weights.gguf_blocks import decode
from penstock.shard.weights.packed_codes import finite, units
from penstock.shard.weights.stored import Entry, StoredTensor
from penstock.system.ggml_types import GGML_TYPES

BYTES_OF_A_WEIGHT = {"Q4_0": 0.625, "Q4_1": 0.75, "Q4_K": 0.75, "Q5_0": 0.75, "Q5_1": 0.875, "Q5_K": 0.875,
                     "Q6_K": 0.875, "Q8_0": 1.25}
"""In memory, about: its bits, a scale of each group, and its minimum."""


class GgufBlocks(CodedFormat):
    """NAME.weight uint8 [N, bytes of a row], in blocks of one type."""

    def __init__(self, activations: Activations, kind: str) -> None:
        """kind: the type, one of GGML_TYPES."""
        super().__init__(activations)
        self.kind = kind

    def tensors(self, linear: str, part: LinearPart) -> tuple[StoredTensor, ...]:
        kind = GGML_TYPES[self.kind]
        blocks = units(part.columns, kind.size)
        shape = part.out_features, kind.row_bytes(part.in_features)
        columns = slice(blocks.start * kind.num_bytes, blocks.stop * kind.num_bytes)
        return (StoredTensor(f"{linear}.weight", shape, (part.rows, columns), ("U8",)),)

    def decode(self, tensors: Sequence[Tensor], part: LinearPart) -> CodedWeight:
        size = GGML_TYPES[self.kind].size
        decoded = decode(self.kind, tensors[0], part.columns.start // size * size)
        for scales in (decoded.scales, decoded.minima):
            if scales is not None:
                finite("weight", scales)
        return decoded

    def num_bytes(self, entry: Entry, dtype: torch.dtype) -> int:
        kind = GGML_TYPES[self.kind]
        if entry.dtype != "U8":
            return super().num_bytes(entry, dtype)
        return int(entry.num_elements // kind.num_bytes * kind.size * BYTES_OF_A_WEIGHT[self.kind])
