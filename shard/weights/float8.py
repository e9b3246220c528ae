"""Numbers of 8 bits with scales: a processor multiplies them as the plain numbers that they stand for."""

from collections.abc import Sequence

import torch
from torch import Tensor

from penstock.kernels.linear import PackedWeight
from penstock.shard.weights.dense import DENSE
from penstock.shard.weights.format import LinearPart, numbering
from penstock.shard.weights.packed_codes import finite, num_units, units
from penstock.shard.weights.stored import Entry, StoredTensor


class Float8:
    """NAME.weight float8_e4m3fn [N, K], of which each block of outputs and inputs shares a number of the scales."""

    def __init__(self, scales: str, block: tuple[int, int] | None) -> None:
        """scales: what follows the linear's name in that of the tensor; block: its outputs and inputs, 0 for all of
        them; None if there is one scale."""
        self._scales, self._block = scales, block

    def tensors(self, linear: str, part: LinearPart) -> tuple[StoredTensor, ...]:
        name, dtypes = f"{linear}.{self._scales}", ("F32", "BF16", "F16")
        weight = StoredTensor(f"{linear}.weight", (part.out_features, part.in_features), (part.rows, part.columns),
                              ("F8_E4M3",))
        if self._block is None:
            return weight, StoredTensor(name, (), (), dtypes, has_any_shape=True)
        shape = num_units(part.out_features, self._block[0]), num_units(part.in_features, self._block[1])
        return weight, StoredTensor(name, shape, (_blocks(part.rows, self._block[0]),
                                                  _blocks(part.columns, self._block[1])), dtypes)

    def pack(
        self, linears: Sequence[Sequence[Tensor]], parts: Sequence[LinearPart], segments: int, dtype: torch.dtype
    ) -> PackedWeight:
        values = []
        for index, ((weight, scales), part) in enumerate(zip(linears, parts, strict=True)):
            with numbering(index):
                values.append([self._values(weight, finite(self._scales, scales), part).to(dtype)])
        return DENSE.pack(values, parts, segments, dtype)

    def num_bytes(self, entry: Entry, dtype: torch.dtype) -> int:
        return DENSE.num_bytes(entry, dtype)

    def _values(self, weight: Tensor, scales: Tensor, part: LinearPart) -> Tensor:
        numbers = weight.float()
        if not bool(torch.isfinite(numbers).all()):
            raise ValueError("weight: there are numbers that are NaN")
        if self._block is None:
            if scales.numel() != 1:
                raise ValueError(f"{self._scales}: {scales.numel()} numbers, expected 1")
            return numbers * scales.reshape(())
        rows = _unit_of_each(part.rows, self._block[0])
        columns = _unit_of_each(part.columns, self._block[1])
        return numbers * scales[rows][:, columns]


def _blocks(part: slice, size: int) -> slice:
    return units(part, size) if size else slice(0, 1)


def _unit_of_each(part: slice, size: int) -> Tensor:
    """Returns the unit of each of the part's numbers, counted from the first of these units."""
    numbers = torch.arange(part.start, part.stop)
    return numbers // size - part.start // size if size else torch.zeros_like(numbers)
