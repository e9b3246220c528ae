"""Plain numbers that become coded weights when they are loaded."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from penstock.kernels.quantised_linear.activations import Activations
from penstock.kernels.quantised_linear.coded_weight import CodedWeight
from penstock.shard.weights.coded import CodedFormat
from penstock.shard.weights.dense import DENSE, weight_of
from penstock.shard.weights.format import LinearPart
from penstock.shard.weights.packed_codes import finite, num_units, units
from penstock.shard.weights.rounding import round_to_nearest, round_to_table
from penstock.shard.weights.stored import Entry, StoredTensor


class Rounded(CodedFormat):
    """A dense checkpoint's linear, rounded to whole numbers, or to the levels of a table."""

    def __init__(self, activations: Activations, bits: int, group: int, table: Tensor | None = None) -> None:
        """group: 0 for one of all inputs; table: as in CodedWeight."""
        super().__init__(activations)
        self.bits, self.group, self._table = bits, group, table

    def tensors(self, linear: str, part: LinearPart) -> tuple[StoredTensor, ...]:
        """Reads whole groups, so that each rank rounds as one alone would."""
        return DENSE.tensors(linear, replace(part, columns=self._columns(part)))

    def decode(self, tensors: Sequence[Tensor], part: LinearPart) -> CodedWeight:
        weight = weight_of(tensors[0], part).contiguous()
        start = self._columns(part).start
        if self._table is not None:
            coded = round_to_table(weight, self._table, self.group, start)
        else:
            coded = round_to_nearest(weight, self.bits, self.group, symmetric=True, start=start)
        finite("weight", coded.scales)
        return coded

    def num_bytes(self, entry: Entry, dtype: torch.dtype) -> int:
        if len(entry.shape) < 2:
            return DENSE.num_bytes(entry, dtype)
        outputs, inputs = math.prod(entry.shape[:-1]), entry.shape[-1]
        return outputs * (inputs * self.bits // 8 + 2 * num_units(inputs, self.group))

    def _columns(self, part: LinearPart) -> slice:
        if not self.group:
            return slice(0, part.in_features)
        own = units(part.columns, self.group)
        return slice(own.start * self.group, min(own.stop * self.group, part.in_features))
