"""Weights in the layout of kernels."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from penstock.kernels import dispatch


@dataclass(frozen=True, slots=True)
class PackedWeight(ABC):
    """A weight [N, K] as `linear` wants it: every format has a subclass, which computes with what it holds."""

    out_features: int
    in_features: int
    segments: int
    dtype: torch.dtype
    """The dtype of the rows that `weight_rows` returns."""

    @property
    def compiled(self) -> Tensor | None:
        """Returns the memory that the processor's compiled kernels read the weight from; None where others compute."""
        return None

    @abstractmethod
    def multiply(self, x: Tensor, bias: Tensor | None, out_dtype: torch.dtype) -> Tensor:
        """Computes `linear`, for arguments that it has checked."""

    def apart(self, x: Tensor) -> Tensor:
        """Computes `linear_apart`, for arguments that it has checked."""
        raise ValueError(f"linear_apart: {type(self).__name__} has no sums apart")

    @abstractmethod
    def rows(self, ids: Tensor) -> Tensor:
        """Computes `weight_rows`, for arguments that it has checked."""


@dataclass(frozen=True, slots=True)
class DenseData(PackedWeight):
    """The part of a dense weight that kernels read, in their layout."""

    data: Tensor

    @property
    def compiled(self) -> Tensor | None:
        return self.data if dispatch.kernel_set() == "cpu" else None
