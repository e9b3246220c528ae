"""The arguments of ops, on the device."""

from typing import TypeVar

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.sample import SampleParameters

Columns = TypeVar("Columns")


def randn(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, device=dispatch.device()).to(dtype)


def moved(columns: Columns) -> Columns:
    """Returns a dataclass of tensors, each copied to the device."""
    return type(columns)(**{name: getattr(columns, name).to(dispatch.device()) for name in type(columns).__slots__})


def moved_parameters(parameters: SampleParameters) -> SampleParameters:
    """Returns the same parameters, copied to the device."""
    return SampleParameters(**{name: column.to(dispatch.device()) for name, column in parameters.columns.items()})
