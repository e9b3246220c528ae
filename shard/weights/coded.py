"""Linears that are stored as small whole numbers."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import groupby

import torch
from torch import Tensor

from penstock.kernels.linear import PackedWeight, stacked
from penstock.kernels.linear.gathered import gathered
from penstock.kernels.quantised_linear import pack_coded
from penstock.kernels.quantised_linear.activations import Activations
from penstock.kernels.quantised_linear.coded_weight import CodedWeight, stack
from penstock.shard.weights.format import STORED_BYTES, LinearPart, numbering
from penstock.shard.weights.stored import Entry, StoredTensor


class CodedFormat(ABC):
    """A format whose linears become coded weights: a subclass says which tensors they have, and what these mean."""

    def __init__(self, activations: Activations) -> None:
        self.activations = activations

    @abstractmethod
    def tensors(self, linear: str, part: LinearPart) -> tuple[StoredTensor, ...]:
        """As in WeightFormat."""

    @abstractmethod
    def decode(self, tensors: Sequence[Tensor], part: LinearPart) -> CodedWeight:
        """Returns the part's outputs of one linear, and at least its inputs, from its tensors.

        Raises ValueError, beginning with the tensor's name, for what no writer of this format would write.
        """

    def order(self, tensors: Sequence[Tensor], part: LinearPart) -> Tensor | None:
        """Returns which input each of the decoded weight's is, int64 [K], if they are not in their own order.

        Raises ValueError if that is so for a part of the inputs.
        """
        return None

    def num_bytes(self, entry: Entry, dtype: torch.dtype) -> int:
        """As in WeightFormat; what is neither codes nor scales is converted."""
        is_converted = len(entry.shape) == 1 and entry.dtype in ("F16", "BF16", "F32")
        return entry.num_elements * (dtype.itemsize if is_converted else STORED_BYTES.get(entry.dtype, 8))

    def pack(
        self, linears: Sequence[Sequence[Tensor]], parts: Sequence[LinearPart], segments: int, dtype: torch.dtype
    ) -> PackedWeight:
        """Packs linears of one form that follow one another as one weight, and stacks those of several."""
        decoded = self._decoded(linears, parts)
        return stacked.stack([_pack(list(alike), segments, self.activations, dtype)
                              for _, alike in groupby(decoded, key=_form)])

    def _decoded(
        self, linears: Sequence[Sequence[Tensor]], parts: Sequence[LinearPart]
    ) -> Iterator[tuple[CodedWeight, Tensor | None]]:
        for index, (tensors, part) in enumerate(zip(linears, parts, strict=True)):
            with numbering(index):
                decoded = self.decode(tensors, part).inputs(part.columns), self.order(tensors, part)
            yield decoded


def _form(weight: tuple[CodedWeight, Tensor | None]) -> tuple[object, ...]:
    coded, order = weight
    return *coded.form, None if order is None else tuple(order.tolist())


def _pack(
    alike: Sequence[tuple[CodedWeight, Tensor | None]], segments: int, activations: Activations, dtype: torch.dtype
) -> PackedWeight:
    return gathered(pack_coded(stack([coded for coded, _ in alike]), segments, activations, dtype), alike[0][1])
