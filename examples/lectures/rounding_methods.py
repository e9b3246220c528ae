"""Granularity, calibration, and six papers' ways to round weights to 4 or 8 bits, by the code of `penstock quantize`.

    python examples/lectures/rounding_methods.py

One linear of 128 inputs and 64 outputs is rounded. Of its inputs a few are much larger than the others, as in language
models from some size on (Dettmers et al. 2022), and all are correlated. The error is that of the outputs: the mean
square of what changes, as a part of the mean square of the outputs.
"""

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from penstock.quantization.block import BlockWeights, Method, Reader
from penstock.quantization.methods import awq, gptq, rtn, smoothquant, squeezellm
from penstock.quantization.settings import Granularity, Settings, make_settings
from penstock.quantization.statistics import OUTLIER, Statistics
from penstock.shard.models.names import BlockNames

METHODS: Mapping[str, Method] = {
    "rtn": rtn.quantise, "gptq": gptq.quantise, "awq": awq.quantise, "squeezellm": squeezellm.quantise,
    "smoothquant": smoothquant.quantise, "llm-int8": rtn.quantise_with_int8_inputs}
LINEAR, NORM = "linear", "norm"
NUM_INPUTS, NUM_OUTPUTS, NUM_LARGE = 128, 64, 4
GROUP = 32
OF_8_BITS = ("smoothquant", "llm-int8")
make = partial(make_settings, group=None, granularity=None, symmetric=True, calibrator=None, percentile=None,
               format_=None, scale_dtype=torch.float16)


def weight_and_inputs() -> tuple[Tensor, Tensor]:
    """Returns a weight [64, 128] with some large numbers, and inputs [1024, 128] of which 4 columns are large."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(NUM_OUTPUTS, NUM_INPUTS, generator=generator)
    weight[::16] *= 4
    weight[3, 70] = 30
    mixed = torch.randn(NUM_INPUTS, NUM_INPUTS, generator=generator) / NUM_INPUTS**0.5 + torch.eye(NUM_INPUTS)
    inputs = torch.randn(1024, NUM_INPUTS, generator=generator) @ mixed
    inputs[:, :: NUM_INPUTS // NUM_LARGE] *= 20
    return weight, inputs


def round_trip(method: str, weight: Tensor, statistics: Statistics, settings: Settings) -> Tensor:
    """Returns the weight [N, K] that a method's codes and what it moves into the norm before the linear stand for."""
    tensors = {f"{LINEAR}.weight": weight, f"{NORM}.weight": torch.ones(weight.shape[1])}
    block = BlockWeights(BlockNames(), (Reader((LINEAR,), norm=NORM),), tensors, {LINEAR: statistics})
    found = METHODS[method](block, settings)
    return found.linears[LINEAR].dequantise() * found.changed.get(f"{NORM}.weight", 1.0)


def inputs_of_8_bits(inputs: Tensor) -> Tensor:
    """Returns inputs [T, K] as 8 bits with a scale for each token have them."""
    scales = inputs.abs().amax(dim=1, keepdim=True) / 127
    return torch.round(inputs / scales) * scales


def errors_of_grids(weight: Tensor, statistics: Statistics) -> dict[str, float]:
    """Returns the error of rounding to the nearest, by what shares a scale and by how far the levels reach."""
    granularities: tuple[Granularity, ...] = ("tensor", "channel", "group")
    grids = {f"a scale for each {each}": make("rtn", 4, group=GROUP if each == "group" else None, granularity=each)
             for each in granularities}
    grids |= {f"calibrated by {each}": make("rtn", 4, granularity="channel", calibrator=each)
              for each in ("min-max", "percentile", "mse")}
    return {name: statistics.error(weight, round_trip("rtn", weight, statistics, settings))
            for name, settings in grids.items()}


def errors_of_methods(weight: Tensor, statistics: Statistics) -> dict[str, float]:
    """Returns the error of each method: of 4 bits with a scale for each group, or of 8 with one for each output."""
    settings = {name: make(name, None, group=None if name in OF_8_BITS else GROUP) for name in METHODS}
    return {name: statistics.error(weight, round_trip(name, weight, statistics, settings[name])) for name in METHODS}


def errors_of_inputs(weight: Tensor, inputs: Tensor, statistics: Statistics) -> dict[str, float]:
    """Returns the error of weights and inputs of 8 bits: as they are, with SmoothQuant's factors moved from one to the
    other, and with LLM.int8()'s large inputs multiplied apart in full precision."""
    tensors = {f"{LINEAR}.weight": weight, f"{NORM}.weight": torch.ones(weight.shape[1])}
    block = BlockWeights(BlockNames(), (Reader((LINEAR,), norm=NORM),), tensors, {LINEAR: statistics})
    smooth = smoothquant.quantise(block, make("smoothquant", None))
    plain = round_trip("llm-int8", weight, statistics, make("llm-int8", None))
    large = inputs.abs().amax(dim=0) >= OUTLIER
    apart = torch.where(large, 0.0, inputs)
    wanted = inputs @ weight.T
    smoothed = inputs * smooth.changed[f"{NORM}.weight"]
    outputs = {
        "as they are": inputs_of_8_bits(inputs) @ plain.T,
        "SmoothQuant": inputs_of_8_bits(smoothed) @ smooth.linears[LINEAR].dequantise().T,
        f"LLM.int8(), {int(large.sum())} inputs apart":
            inputs_of_8_bits(apart) @ plain.T + (inputs - apart) @ weight.T}
    return {name: float((found - wanted).square().mean() / wanted.square().mean()) for name, found in outputs.items()}


def main() -> None:
    weight, inputs = weight_and_inputs()
    statistics = Statistics.empty(NUM_INPUTS)
    statistics.add(inputs)
    for title, errors in (("Rounded to the nearest of 4 bits", errors_of_grids(weight, statistics)),
                          ("By each method, 4 bits or 8", errors_of_methods(weight, statistics)),
                          ("Weights and inputs of 8 bits", errors_of_inputs(weight, inputs, statistics))):
        print(title, *(f"{name:>28}  {error:.6f}" for name, error in errors.items()), sep="\n")


if __name__ == "__main__":
    main()
