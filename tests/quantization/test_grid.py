"""Scales and codes of groups."""

import pytest
import torch
from torch import Tensor

from penstock.quantization.grid import encode, fit
from penstock.quantization.settings import Grid
from penstock.shard.weights.rounding import round_to_nearest


def grid(bits: int = 4, granularity: str = "group", symmetric: bool = True, calibrator: str = "min-max",
         percentile: float = 99.0) -> Grid:
    return Grid(bits, granularity, 32, symmetric, calibrator, percentile, torch.float16)  # type: ignore[arg-type]


def weight(outputs: int = 24, inputs: int = 80) -> Tensor:
    return torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(3))


def error(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).square().mean())


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [4, 8])
def test_rounding_to_nearest_is_that_of_loading(bits: int, symmetric: bool) -> None:
    own = grid(bits, symmetric=symmetric)
    found, expected = encode(weight(), *fit(weight(), own), own), round_to_nearest(weight(), bits, 32, symmetric)
    assert torch.equal(found.dequantise(), expected.dequantise())


@pytest.mark.parametrize("granularity", ["tensor", "channel", "group"])
def test_the_finer_the_better(granularity: str) -> None:
    numbers = weight() * torch.logspace(-1, 1, 24)[:, None]
    errors = [error(encode(numbers, *fit(numbers, own), own).dequantise(), numbers)
              for own in (grid(granularity=name) for name in ("tensor", "channel", "group"))]
    assert errors == sorted(errors, reverse=True)
    scales, _ = fit(numbers, grid(granularity=granularity))
    assert len(scales.unique()) == {"tensor": 1, "channel": 24, "group": 72}[granularity]


@pytest.mark.parametrize("granularity", ["tensor", "channel", "group"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_least_squared_error_is_no_more_than_that_of_all_the_range(symmetric: bool, granularity: str) -> None:
    counts = torch.rand(80, generator=torch.Generator().manual_seed(4)).square()
    results = []
    for name in ("min-max", "mse"):
        own = grid(symmetric=symmetric, granularity=granularity, calibrator=name)
        found = encode(weight(), *fit(weight(), own, counts), own).dequantise()
        results.append(float(((found - weight()).square() * counts).sum()))
    assert results[1] < results[0]


def test_percentile_leaves_outliers_outside() -> None:
    numbers = weight()
    numbers[0, 5] = 100.0
    own = grid(8, "channel", calibrator="percentile", percentile=95)
    scales, _ = fit(numbers, own)
    assert scales[0, 0] * 127 < 10
    assert float(encode(numbers, scales, None, own).dequantise()[0, 5]) == pytest.approx(float(scales[0, 0]) * 127)


def test_a_percentile_of_a_tensor_is_that_of_all_its_numbers() -> None:
    numbers = torch.cat([weight() * 100, weight(outputs=1000)])
    scales, _ = fit(numbers, grid(8, "tensor", calibrator="percentile", percentile=95))
    least, largest = torch.quantile(numbers, torch.tensor([0.025, 0.975]))
    assert len(scales.unique()) == 1
    assert 127 * float(scales[0, 0]) == pytest.approx(float(max(-least, largest)), rel=1e-2)
