"""The scales of a weight's groups, and the codes that they make of its numbers."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from penstock.kernels.quantised_linear.coded_weight import CodedWeight
from penstock.quantization.settings import Grid
from penstock.shard.weights.rounding import inverse, scales_between

SHRINKS = [1 - step / 40 for step in range(24)]
"""The ranges that calibrator "mse" tries: parts of the range from the least number to the largest."""


def grouped(weight: Tensor, grid: Grid) -> Tensor:
    """Returns the weight [N, K] in groups, [N, G, size], the last of which zeros may fill up."""
    outputs, inputs = weight.shape
    size = grid.size(inputs)
    return functional.pad(weight, (0, -inputs % size)).view(outputs, -1, size)


def fit(weight: Tensor, grid: Grid, importance: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """Returns the scales of a weight's groups, [N, G], and their zeros unless it is symmetric.

    importance: [K], what a squared error of each input counts, for calibrator "mse"; None if all count alike
    """
    groups = grouped(weight, grid)
    least, largest = _range(groups, grid)
    if grid.calibrator != "mse":
        return _scales(least, largest, grid)
    weights = torch.ones(1, weight.shape[1]) if importance is None else importance[None]
    counts = grouped(weights, grid)
    best = torch.full_like(least, torch.inf)
    chosen_least, chosen_largest = least.clone(), largest.clone()
    for shrink in SHRINKS:
        scales, zeros = _scales(least * shrink, largest * shrink, grid)
        errors = ((_nearest(groups, scales, zeros, grid)[1] - groups).square_() * counts).sum(2)
        if grid.granularity == "tensor":
            errors = errors.sum().expand_as(errors)
        is_better = errors < best
        best = torch.where(is_better, errors, best)
        chosen_least = torch.where(is_better, least * shrink, chosen_least)
        chosen_largest = torch.where(is_better, largest * shrink, chosen_largest)
    return _scales(chosen_least, chosen_largest, grid)


def encode(weight: Tensor, scales: Tensor, zeros: Tensor | None, grid: Grid) -> CodedWeight:
    """Returns the nearest levels to a weight [N, K]."""
    codes, _ = _nearest(grouped(weight, grid), scales, zeros, grid)
    return coded(codes.flatten(1)[:, : weight.shape[1]].to(torch.uint8).contiguous(), scales, zeros, grid)


def coded(codes: Tensor, scales: Tensor, zeros: Tensor | None, grid: Grid) -> CodedWeight:
    """Returns codes uint8 [N, K] with the scales and zeros of their groups."""
    return CodedWeight(codes, grid.bits, grid.size(codes.shape[1]), scales.float().contiguous(),
                       zero=2 ** (grid.bits - 1) if zeros is None else 0,
                       zeros=None if zeros is None else zeros.short())


def nearest_of_column(column: Tensor, scales: Tensor, zeros: Tensor | None, grid: Grid) -> tuple[Tensor, Tensor]:
    """Returns the codes of one input's weights [N], and their values; scales and zeros [N] are those of its group."""
    codes, values = _nearest(column[:, None, None], scales[:, None], None if zeros is None else zeros[:, None], grid)
    return codes.flatten(), values.flatten()


def _range(groups: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
    """Returns the least and the largest number that the levels of each group [N, G] reach."""
    numbers = groups.flatten()[None, None] if grid.granularity == "tensor" else groups
    if grid.calibrator != "percentile":
        least, largest = numbers.amin(dim=2), numbers.amax(dim=2)
    else:
        tail = (1 - grid.percentile / 100) / 2
        least, largest = map(torch.from_numpy, np.quantile(numbers.numpy(), [tail, 1 - tail], axis=2))
    return least.to(groups).expand(groups.shape[:2]), largest.to(groups).expand(groups.shape[:2])


def _scales(least: Tensor, largest: Tensor, grid: Grid) -> tuple[Tensor, Tensor | None]:
    """Scales are rounded to the dtype that the file has, so that what is read is what was chosen."""
    scales, zeros = scales_between(least, largest, grid.bits, grid.symmetric)
    return scales.to(grid.scale_dtype).float(), zeros


def _nearest(groups: Tensor, scales: Tensor, zeros: Tensor | None, grid: Grid) -> tuple[Tensor, Tensor]:
    """Returns the codes of groups [N, G, size] as float32, and the values that they stand for."""
    zero = 2.0 ** (grid.bits - 1) if zeros is None else zeros[:, :, None]
    least = 1 if zeros is None and grid.bits == 8 else 0  # the levels of 8 bits are from -127 to 127
    codes = (groups * inverse(scales)[:, :, None]).round_().add_(zero).clamp_(least, 2**grid.bits - 1)
    return codes, (codes - zero) * scales[:, :, None]
