"""AWQ (Lin et al. 2023): inputs that are large get larger weights before these are rounded, so that their errors are
smaller."""

import torch
from torch import Tensor

from penstock.quantization.block import BlockWeights, Quantised, Reader
from penstock.quantization.grid import encode, fit
from penstock.quantization.methods.scaling import changed, divide_inputs
from penstock.quantization.settings import Grid, Settings
from penstock.quantization.statistics import Statistics

EXPONENTS = [step / 20 for step in range(20)]
"""Of the mean magnitudes of inputs, of which the best is taken; 0 leaves the weights as they are."""


def quantise(block: BlockWeights, settings: Settings) -> Quantised:
    before, grid = dict(block.tensors), settings.grid
    linears = {}
    for reader in block.readers:         # down changes up, so all factors come before any codes
        if reader.norm is not None or reader.source is not None:
            divide_inputs(block, reader, _factors(block, reader, grid))
    for reader in block.readers:
        for linear in reader.linears:
            weight = block.weight(linear)
            importance = _importance(before[f"{linear}.weight"], weight, block.statistics[linear])
            linears[linear] = encode(weight, *fit(weight, grid, importance), grid)
    return Quantised(linears, changed(block, before))


def _factors(block: BlockWeights, reader: Reader, grid: Grid) -> Tensor:
    """Returns the factor of each input, float32 [K], with the least error of the outputs."""
    statistics = block.statistics[reader.linears[0]]
    magnitudes = (statistics.magnitudes / max(1, statistics.count)).clamp(min=1e-4)
    best, chosen = torch.inf, torch.ones_like(magnitudes)
    for exponent in EXPONENTS:
        factors = magnitudes.pow(exponent)
        factors = factors / (factors.amax() * factors.amin()).sqrt()
        error = sum(_error(block.weight(linear), factors, statistics, grid) for linear in reader.linears)
        if error < best:
            best, chosen = error, factors
    return chosen


def _error(weight: Tensor, factors: Tensor, statistics: Statistics, grid: Grid) -> float:
    scaled = weight * factors
    importance = statistics.hessian.diagonal() / factors.square()
    rounded = encode(scaled, *fit(scaled, grid, importance), grid).dequantise() / factors
    difference = weight - rounded
    return float((difference @ statistics.hessian * difference).sum())


def _importance(before: Tensor, after: Tensor, statistics: Statistics) -> Tensor:
    """Returns the weight of each changed input's squared error: its inputs were divided by after / before."""
    return statistics.hessian.diagonal() * (before.square().sum(0) / after.square().sum(0).clamp(min=1e-30))
