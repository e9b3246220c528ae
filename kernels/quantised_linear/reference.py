"""The linear layer over coded weights in torch: activations as the contract says, and float64 sums."""


import torch
from torch import Tensor

from penstock.kernels.quantised_linear.activations import Activations, quantise
from penstock.kernels.quantised_linear.coded_data import CodedData
from penstock.kernels.quantised_linear.coded_weight import CodedWeight
from penstock.kernels.quantised_linear.pieces import cut


def pack(coded: CodedWeight, segments: int, activations: Activations) -> tuple[Tensor, ...]:
    """Returns levels [N, K], scales [N, P], minima [N, P] or [N, 0], and for each of P pieces its begin, end and
    segment, int64 [P, 3]."""
    pieces = cut(coded.start, coded.in_features, coded.group, segments)
    groups = torch.tensor([piece.group for piece in pieces], dtype=torch.int64)
    bounds = torch.tensor([(piece.begin, piece.end, piece.segment) for piece in pieces], dtype=torch.int64)
    scales, minima = coded.group_scales(), coded.group_minima()
    of_pieces = scales[:, :0] if minima is None else minima[:, groups]
    return coded.levels(), scales[:, groups], of_pieces, bounds.view(len(pieces), 3)


def linear(x: Tensor, packed: CodedData, bias: Tensor | None, out_dtype: torch.dtype) -> Tensor:
    sums = _exact_sums(x, packed)
    if packed.segments > 1:
        sums = sums.float()
    while len(sums) > 1:
        sums = sums[0::2] + sums[1::2]
    total = sums[0]
    return (total if bias is None else total + bias).to(out_dtype)


def linear_apart(x: Tensor, packed: CodedData) -> Tensor:
    return _exact_sums(x, packed).float()


def _exact_sums(x: Tensor, packed: CodedData) -> Tensor:
    """Returns each segment's sums, float64 [S, T, N]."""
    levels, scales, minima, bounds = packed.data
    sums = torch.zeros(packed.segments, len(x), packed.out_features, dtype=torch.float64)
    for piece, (begin, end, segment) in enumerate(bounds.tolist()):
        part, scale = x[:, begin:end].float(), torch.ones(len(x))
        if packed.activations is Activations.INT8:
            part, scale = quantise(part)
        total = part.double() @ levels[:, begin:end].double().t() * scales[:, piece]
        if minima.numel():
            total += part.double().sum(dim=1, keepdim=True) * minima[:, piece]
        sums[segment] += total * scale[:, None]
    return sums


def weight_rows(packed: CodedData, ids: Tensor) -> Tensor:
    levels, scales, minima, bounds = packed.data
    pieces = torch.repeat_interleave(bounds[:, 1] - bounds[:, 0])
    values = levels[ids] * scales[ids][:, pieces]
    if minima.numel():
        values += minima[ids][:, pieces]
    return values.to(packed.dtype)
