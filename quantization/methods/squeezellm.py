"""SqueezeLLM (Kim et al. 2023): levels that lie where the weights are, by k-means that counts errors by what they do to
the outputs.

The paper has a table for each output, and keeps outliers apart. Here a linear has one table, and each group its largest
number, which is what files for tables of 16 levels can hold.
"""

import torch
from torch import Tensor

from penstock.kernels.quantised_linear.coded_weight import CodedWeight
from penstock.quantization.block import BlockWeights, Quantised
from penstock.quantization.grid import grouped
from penstock.quantization.settings import Grid, Settings
from penstock.shard.weights.rounding import round_to_table

BINS = 8192                              # of the numbers from -1 to 1
ROUNDS = 50
LEVELS = 16


def quantise(block: BlockWeights, settings: Settings) -> Quantised:
    return Quantised({linear: _round(block.weight(linear), block.statistics[linear].hessian.diagonal(), settings.grid)
                      for reader in block.readers for linear in reader.linears})


def _round(weight: Tensor, importance: Tensor, grid: Grid) -> CodedWeight:
    groups = grouped(weight, grid)
    scales = groups.abs().amax(dim=2, keepdim=True).clamp(min=1e-30)
    counts = grouped(importance[None], grid) * scales.square()
    table = levels((groups / scales).flatten(), counts.expand_as(groups).flatten())
    return round_to_table(weight, table, grid.size(weight.shape[1]))


def levels(numbers: Tensor, counts: Tensor) -> Tensor:
    """Returns 16 levels, float32 and ascending, of numbers from -1 to 1 that count differently; -1 or 1, and 0, are
    among them."""
    bins = ((numbers + 1) / 2 * (BINS - 1)).round().long()
    totals = torch.zeros(BINS, dtype=torch.float64).index_add_(0, bins, counts.double())
    places = torch.linspace(-1, 1, BINS, dtype=torch.float64)
    shares = totals.cumsum(0) / totals.sum().clamp(min=1e-300)
    wanted = (torch.arange(LEVELS, dtype=torch.float64) + 0.5) / LEVELS
    centres = places[torch.searchsorted(shares, wanted).clamp(max=BINS - 1)]
    for _ in range(ROUNDS):
        owner = torch.bucketize(places, (centres[1:] + centres[:-1]) / 2)
        sums = torch.zeros(LEVELS, dtype=torch.float64).index_add_(0, owner, totals)
        moments = torch.zeros(LEVELS, dtype=torch.float64).index_add_(0, owner, totals * places)
        centres = torch.where(sums > 0, moments / sums.clamp(min=1e-300), centres).sort().values
    centres = centres / centres.abs().amax().clamp(min=1e-30)
    centres[centres.abs().argmin()] = 0.0
    return centres.sort().values.float()
