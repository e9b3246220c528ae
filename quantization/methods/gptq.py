"""GPTQ (Frantar et al. 2022): each input's rounding error is made up for by the inputs that are still to be rounded."""

import torch
from torch import Tensor

from penstock.kernels.quantised_linear.coded_weight import CodedWeight
from penstock.quantization.block import BlockWeights, Quantised
from penstock.quantization.grid import coded, fit, nearest_of_column
from penstock.quantization.settings import Grid, Settings

AT_ONCE = 128                            # inputs after which the errors reach all that follow


def quantise(block: BlockWeights, settings: Settings) -> Quantised:
    linears = {}
    for reader in block.readers:
        hessian = block.statistics[reader.linears[0]].hessian
        order, factor = factorised(hessian, settings.damping)
        for linear in reader.linears:
            linears[linear] = _round(block.weight(linear), hessian.diagonal(), order, factor, settings.grid)
    return Quantised(linears)


def factorised(hessian: Tensor, damping: float) -> tuple[Tensor, Tensor]:
    """Returns the inputs in the order of their diagonal, the largest first, int64 [K], and in this order the upper
    Cholesky factor of the damped Hessian's inverse, [K, K].

    The damping grows until there is one: texts fewer than inputs leave the Hessian singular.
    """
    diagonal = hessian.diagonal()
    order = torch.argsort(diagonal, descending=True, stable=True)
    ordered = hessian[order][:, order].double()
    mean = float(diagonal.double().mean()) or 1.0
    while True:
        damped = ordered + damping * mean * torch.eye(len(ordered), dtype=torch.float64)
        lower, failed = torch.linalg.cholesky_ex(damped)
        if not failed:
            inverse = torch.cholesky_inverse(lower)
            upper, failed = torch.linalg.cholesky_ex(inverse, upper=True)
            if not failed:
                return order, upper.float()
        damping *= 10


def _round(weight: Tensor, importance: Tensor, order: Tensor, factor: Tensor, grid: Grid) -> CodedWeight:
    """Groups keep the scales of the weight as it is, so that its inputs stay in their order in the file."""
    scales, zeros = fit(weight, grid, importance)
    left = weight[:, order].clone()
    group_of = order // grid.size(weight.shape[1])
    codes = torch.empty(weight.shape, dtype=torch.uint8)
    for begin in range(0, len(order), AT_ONCE):
        end = min(begin + AT_ONCE, len(order))
        errors = torch.empty(len(weight), end - begin)
        for at in range(begin, end):
            group = group_of[at]
            column, values = nearest_of_column(
                left[:, at], scales[:, group], None if zeros is None else zeros[:, group], grid)
            codes[:, order[at]] = column.to(torch.uint8)
            error = (left[:, at] - values) / factor[at, at]
            left[:, at:end].addr_(error, factor[at, at:end], alpha=-1)
            errors[:, at - begin] = error
        left[:, end:].addmm_(errors, factor[begin:end, end:], alpha=-1)
    return coded(codes, scales, zeros, grid)
