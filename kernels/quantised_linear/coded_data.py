"""Coded weights in the layout of kernels."""

from dataclasses import dataclass

from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.linear import PackedWeight
from penstock.kernels.quantised_linear.activations import Activations


@dataclass(frozen=True, slots=True)
class CodedData(PackedWeight):
    """The part of a coded weight that kernels read, in their layout."""

    data: tuple[Tensor, ...]
    activations: Activations

    @property
    def compiled(self) -> Tensor | None:
        return self.data[0] if dispatch.kernel_set() == "cpu" else None
