"""Rounding to the nearest level, without calibration texts."""

from penstock.quantization.block import BlockWeights, Quantised
from penstock.quantization.grid import encode, fit
from penstock.quantization.settings import Settings


def quantise(block: BlockWeights, settings: Settings) -> Quantised:
    grid = settings.grid
    return Quantised({linear: encode(block.weight(linear), *fit(block.weight(linear), grid), grid)
                      for reader in block.readers for linear in reader.linears})


def quantise_with_int8_inputs(block: BlockWeights, settings: Settings) -> Quantised:
    """LLM.int8() (Dettmers et al. 2022): each output's weights are rounded to 8 bits by their largest.

    The paper multiplies inputs of 6 and more apart, in 16 bits, and finds them as they come; no file has them. The
    report says how many inputs there were.
    """
    return quantise(block, settings)
