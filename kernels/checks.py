"""What every op asks of its tensors, with messages that name the op, the tensor, what was expected and what came."""

from collections.abc import Sequence

import torch
from torch import Tensor

FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def check_tensor(op: str, name: str, tensor: Tensor, shape: Sequence[int], *dtypes: torch.dtype) -> None:
    """Raise ValueError unless `tensor` has this shape, one of these dtypes, and is contiguous."""
    _check_kind(op, name, tensor, shape, dtypes)
    if not tensor.is_contiguous():
        raise ValueError(f"{op}: {name} {list(shape)} is not contiguous, its strides are {list(tensor.stride())}")


def check_rows(op: str, name: str, tensor: Tensor, shape: Sequence[int], *dtypes: torch.dtype) -> None:
    """check_tensor for rows that may lie apart, as some columns of a matrix do: each tensor[i] is contiguous."""
    _check_kind(op, name, tensor, shape, dtypes)
    if not (tensor.is_contiguous() or tensor[0].is_contiguous()):
        raise ValueError(
            f"{op}: the rows of {name} {list(shape)} are not contiguous, its strides are {list(tensor.stride())}")


def check_axes(op: str, name: str, tensor: Tensor, axes: str) -> None:
    """Raise ValueError unless `tensor` has as many axes as `axes` names, for instance "T, H, D"."""
    if tensor.dim() != axes.count(",") + 1:
        raise ValueError(f"{op}: {name} has shape {list(tensor.shape)}, expected [{axes}]")


def _check_kind(op: str, name: str, tensor: Tensor, shape: Sequence[int], dtypes: Sequence[torch.dtype]) -> None:
    if tensor.shape != shape and tensor.shape != torch.Size(shape):
        raise ValueError(f"{op}: {name} has shape {list(tensor.shape)}, expected {list(shape)}")
    if tensor.dtype not in dtypes:
        expected = " or ".join(str(dtype) for dtype in dtypes)
        raise ValueError(f"{op}: {name} {list(shape)} has dtype {tensor.dtype}, expected {expected}")
