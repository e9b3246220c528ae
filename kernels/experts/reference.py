"""A mixture of experts by the other ops: one expert after the other, its products added where its tokens are."""

import torch
from torch import Tensor

from penstock.kernels.activation import activate_gate
from penstock.kernels.experts.weights import ExpertWeights
from penstock.kernels.linear import linear, linear_apart


def prepare(layer: ExpertWeights) -> object:
    """Returns nothing: the ops take them as they are."""
    return None


def experts(x: Tensor, ids: Tensor, weights: Tensor, layer: ExpertWeights, out_dtype: torch.dtype) -> Tensor:
    sums = torch.zeros(layer.segments, len(x), layer.down[0].out_features, dtype=torch.float32, device=x.device)
    for number in torch.unique(ids).tolist():
        token, choice = (ids == number).nonzero(as_tuple=True)
        bias = None if layer.gate_up_bias is None else layer.gate_up_bias[number]
        inner = activate_gate(linear(x[token], layer.gate_up[number], bias), layer.activation)
        sums[:, token] += linear_apart(inner, layer.down[number]) * weights[token, choice][:, None]
    while len(sums) > 1:
        sums = sums[0::2] + sums[1::2]
    return sums[0].to(out_dtype)
