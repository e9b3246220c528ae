"""Checks of an op's tensors, whose messages name the op, the tensor, what was expected and what came."""

from collections.abc import Sequence

import torch
from torch import Tensor

FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def check_tensor(op: str, name: str, tensor: Tensor, shape: Sequence[int], *dtypes: torch.dtype) -> None:
    """Raises ValueError unless `tensor` has this shape, one of these dtypes, and is contiguous."""
    if tensor.shape == shape and tensor.dtype in dtypes and tensor.is_contiguous():
        return  # as nearly always, several times for each op of a step
    _check_kind(op, name, tensor, shape, dtypes)
    if not tensor.is_contiguous():
        raise ValueError(f"{op}: {name} {list(shape)} is not contiguous, its strides are {list(tensor.stride())}")


def check_rows(op: str, name: str, tensor: Tensor, shape: Sequence[int], *dtypes: torch.dtype) -> None:
    """Checks a tensor whose rows may lie apart: each row must be contiguous, the whole need not be."""
    if tensor.shape == shape and tensor.dtype in dtypes and tensor.is_contiguous():
        return
    _check_kind(op, name, tensor, shape, dtypes)
    if not tensor[:1].is_contiguous():
        raise ValueError(
            f"{op}: a row of {name} {list(shape)} is not contiguous, its strides are {list(tensor.stride())}")


def _check_kind(op: str, name: str, tensor: Tensor, shape: Sequence[int], dtypes: Sequence[torch.dtype]) -> None:
    if tensor.shape != torch.Size(shape):
        raise ValueError(f"{op}: {name} has shape {list(tensor.shape)}, expected {list(shape)}")
    if tensor.dtype not in dtypes:
        expected = " or ".join(str(dtype) for dtype in dtypes)
        raise ValueError(f"{op}: {name} {list(shape)} has dtype {tensor.dtype}, expected {expected}")


def check_axes(op: str, name: str, tensor: Tensor, axes: str) -> None:
    """Raises ValueError unless `tensor` has as many axes as `axes` names, for instance "T, H, D"."""
    if tensor.dim() != axes.count(",") + 1:
        raise ValueError(f"{op}: {name} has shape {list(tensor.shape)}, expected [{axes}]")


def check_rotation(op: str, cos: Tensor, head_dim: int) -> None:
    """Raises ValueError unless a head has the dimensions that `cos` [P, R / 2] rotates."""
    if 2 * cos.shape[1] > head_dim:
        raise ValueError(f"{op}: cos {list(cos.shape)} rotates {2 * cos.shape[1]} dimensions, a head has {head_dim}")
