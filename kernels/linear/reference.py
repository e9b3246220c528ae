"""The linear layer in torch: float64 sums of products, which float64 holds exactly."""

import torch
from torch import Tensor

from penstock.kernels.linear.packed_weight import DenseData


def pack(weight: Tensor, segments: int) -> Tensor:
    """Returns the weight as float64 [segments, K / segments, N]."""
    out_features, in_features = weight.shape
    data = torch.empty(segments, in_features // segments, out_features, dtype=torch.float64, device=weight.device)
    return data.copy_(weight.t().reshape(data.shape))


def linear(x: Tensor, packed: DenseData, bias: Tensor | None, out_dtype: torch.dtype) -> Tensor:
    data = packed.data
    if len(data) == 1:
        total = x.double() @ data[0]
    else:
        sums = linear_apart(x, packed)
        while len(sums) > 1:
            sums = sums[0::2] + sums[1::2]
        total = sums[0]
    if bias is not None:
        total = total + bias
    return total.to(out_dtype)


def linear_apart(x: Tensor, packed: DenseData) -> Tensor:
    segments, width, _ = packed.data.shape
    return torch.bmm(x.double().view(len(x), segments, width).transpose(0, 1), packed.data).float()


def weight_rows(packed: DenseData, ids: Tensor) -> Tensor:
    return packed.data[0].t()[ids].to(packed.dtype)
