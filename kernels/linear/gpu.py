"""The linear layer on a GPU: the products of a fixed order where the bit contract is asked for, else the fastest."""

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.linear import any_order, fixed_order
from penstock.kernels.linear.packed_weight import DenseData


def pack(weight: Tensor, segments: int) -> Tensor:
    """Returns the weight as it is, [N, K]: what a tile needs of a row lies together."""
    return weight


def linear(x: Tensor, packed: DenseData, bias: Tensor | None, out_dtype: torch.dtype) -> Tensor:
    if dispatch.is_deterministic():
        return fixed_order.matmul(x, packed.data, packed.segments, bias, out_dtype)
    return any_order.matmul(x, packed.data, bias, out_dtype)  # in one sum, whatever the segments


def linear_apart(x: Tensor, packed: DenseData) -> Tensor:
    inputs, weights = (part.chunk(packed.segments, dim=1) for part in (x, packed.data))
    if dispatch.is_deterministic():
        return torch.stack([fixed_order.matmul(own.contiguous(), weight.contiguous(), 1, None, torch.float32)
                            for own, weight in zip(inputs, weights, strict=True)])
    return torch.stack([any_order.torchs(own, weight, None, torch.float32)
                        for own, weight in zip(inputs, weights, strict=True)])


def weight_rows(packed: DenseData, ids: Tensor) -> Tensor:
    return packed.data.index_select(0, ids)
