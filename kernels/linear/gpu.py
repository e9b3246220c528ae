"""The linear layer on a GPU: torch's matmul, or, where the bit contract is asked for, one of a fixed order."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from penstock.kernels import dispatch
from penstock.kernels.linear import fixed_order

if TYPE_CHECKING:
    from penstock.kernels.linear import DenseWeight

# Where cuBLAS splits a sum it is to add the parts in float32.
torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


def pack(weight: Tensor, segments: int) -> Tensor:
    """Returns the weight as it is, [N, K]: what a tile needs of a row lies together."""
    return weight


def linear(x: Tensor, packed: "DenseWeight", bias: Tensor | None, out_dtype: torch.dtype) -> Tensor:
    if dispatch.is_deterministic():
        return fixed_order.matmul(x, packed.data, packed.segments, bias, out_dtype)
    return _matmul(x, packed.data, bias, out_dtype)


def linear_apart(x: Tensor, packed: "DenseWeight") -> Tensor:
    inputs, weights = (part.chunk(packed.segments, dim=1) for part in (x, packed.data))
    if dispatch.is_deterministic():
        return torch.stack([fixed_order.matmul(own.contiguous(), weight.contiguous(), 1, None, torch.float32)
                            for own, weight in zip(inputs, weights, strict=True)])
    return torch.stack([_matmul(own, weight, None, torch.float32) for own, weight in zip(inputs, weights, strict=True)])


def weight_rows(packed: "DenseWeight", ids: Tensor) -> Tensor:
    return packed.data.index_select(0, ids)


def _matmul(x: Tensor, weight: Tensor, bias: Tensor | None, out_dtype: torch.dtype) -> Tensor:
    """Multiplies in one sum, whatever the segments. Rounds once, with the bias where that has the dtype of the rest."""
    is_one_dtype = x.dtype == weight.dtype == out_dtype and (bias is None or bias.dtype == out_dtype)
    if is_one_dtype and (x.is_cuda or out_dtype == torch.float32):
        return functional.linear(x, weight, bias)
    if x.is_cuda and x.dtype == weight.dtype != torch.float32:
        total = torch.mm(x, weight.t(), out_dtype=torch.float32)
    else:  # what torch cannot do without rounding to 16 bits in between
        total = torch.mm(x.float(), weight.float().t())
    return (total if bias is None else total + bias).to(out_dtype)
