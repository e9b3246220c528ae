"""Linears that are stored as small whole numbers."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor

from penstock.kernels.linear import PackedWeight, stacked
from penstock.kernels.quantised_linear import pack_coded
from penstock.kernels.quantised_linear.activations import Activations
from penstock.kernels.quantised_linear.coded_weight import CodedWeight, stack
from penstock.shard.weights.checkpoint import Entry, StoredTensor
from penstock.shard.weights.format import LinearPart


class CodedFormat(ABC):
    """A format whose linears become coded weights: a subclass says which tensors they have, and what these mean."""

    def __init__(self, activations: Activations) -> None:
        self.activations = activations

    @abstractmethod
    def tensors(self, linear: str, part: LinearPart) -> tuple[StoredTensor, ...]:
        """As in WeightFormat."""

    @abstractmethod
    def decode(self, tensors: Sequence[Tensor], columns: slice) -> CodedWeight:
        """Returns one linear's weight from its tensors, at least the inputs `columns`, counted over all ranks."""

    @abstractmethod
    def num_bytes(self, entry: Entry, dtype: torch.dtype) -> int:
        """As in WeightFormat."""

    def pack(
        self, linears: Sequence[Sequence[Tensor]], columns: slice, segments: int, dtype: torch.dtype
    ) -> PackedWeight:
        """Packs linears of one form that follow one another as one weight, and stacks those of several."""
        decoded = [self.decode(tensors, columns).inputs(columns) for tensors in linears]
        return stacked.stack([pack_coded(stack(list(alike)), segments, self.activations, dtype)
                              for _, alike in groupby(decoded, key=lambda coded: coded.form)])
