"""SmoothQuant (Xiao et al. 2022): the weights take over a part of what makes inputs differ in size, so that inputs and
weights can both be rounded to 8 bits."""

import torch

from penstock.quantization.block import BlockWeights, Quantised
from penstock.quantization.grid import encode, fit
from penstock.quantization.methods.scaling import changed, divide_inputs
from penstock.quantization.settings import Settings

LEAST = 1e-5


def quantise(block: BlockWeights, settings: Settings) -> Quantised:
    before, grid = dict(block.tensors), settings.grid
    for reader in block.readers:
        if reader.norm is None:          # as in the paper, which moves factors into norms alone
            continue
        inputs = block.statistics[reader.linears[0]].largest.clamp(min=LEAST)
        weights = torch.stack([block.weight(linear).abs().amax(0) for linear in reader.linears]).amax(0)
        factors = inputs.pow(settings.smoothing) / weights.clamp(min=LEAST).pow(1 - settings.smoothing)
        divide_inputs(block, reader, factors.clamp(min=LEAST))
    linears = {linear: encode(block.weight(linear), *fit(block.weight(linear), grid), grid)
               for reader in block.readers for linear in reader.linears}
    return Quantised(linears, changed(block, before))
