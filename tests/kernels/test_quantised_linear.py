"""The linear layer over coded weights, on each set of kernels."""

import itertools

import pytest
import torch

from penstock.kernels.linear import linear, weight_rows
from penstock.kernels.quantised_linear import QuantisedWeight, pack_coded
from penstock.kernels.quantised_linear.activations import Activations, quantise
from tests.kernels.accuracy import DTYPES, relative_rms
from tests.kernels.coded import KINDS, make

INT8, FLOAT = Activations.INT8, Activations.FLOAT
WHOLE = [name for name, kind in KINDS.items() if kind.is_whole]


def inputs(rows: int, width: int, dtype: torch.dtype = torch.float32, seed: int = 1) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)).to(dtype)


def packed(name: str, outputs: int, width: int, segments: int, activations: Activations) -> QuantisedWeight:
    return pack_coded(make(name, outputs, width), segments, activations, torch.bfloat16)


@pytest.mark.parametrize("segments", [1, 8])
@pytest.mark.parametrize("name", KINDS)
def test_inputs_as_they_are_give_the_dequantised_weights_product(kernel_set, name, segments):
    x, bias = inputs(3, 640), torch.randn(70, generator=torch.Generator().manual_seed(2))
    exact = x.double() @ make(name, 70, 640).dequantise().double().t() + bias.double()
    out = linear(x, packed(name, 70, 640, segments, FLOAT), bias)
    assert relative_rms(out, exact) < 2e-6


@pytest.mark.parametrize("segments", [1, 8])
@pytest.mark.parametrize("name", WHOLE)
def test_inputs_in_8_bits_are_rounded_by_pieces(kernel_set, name, segments):
    x, coded = inputs(3, 640), make(name, 70, 640)
    width = 640 // segments
    rounded = torch.zeros_like(x)
    cuts = sorted({*range(0, 640, min(coded.group, 640)), *range(0, 641, width), 640})
    for begin, end in itertools.pairwise(cuts):
        whole, scale = quantise(x[:, begin:end])
        rounded[:, begin:end] = whole * scale[:, None]
    exact = rounded.double() @ coded.dequantise().double().t()
    assert relative_rms(linear(x, packed(name, 70, 640, segments, INT8)), exact) < 2e-6
    assert relative_rms(rounded, x.double()) < 0.02


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", KINDS)
def test_rows_are_the_dequantised_values(kernel_set, name, dtype):
    coded = make(name, 70, 360)
    weight = pack_coded(coded, 1, FLOAT, dtype)
    ids = torch.tensor([69, 0, 33, 0])
    assert torch.equal(weight_rows(weight, ids), coded.dequantise()[ids].to(dtype))
