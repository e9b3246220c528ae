"""Adapters' kernels: against float64, and a row's bits whatever is beside it."""

import pytest
import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.lora import AdapterRows, expand, pack_adapter, packed_bytes, shrink
from penstock.kernels.lora.adapter import Part, Shape
from tests import kernel_sets
from tests.kernels.accuracy import DTYPES, relative_rms
from tests.kernels.compiled import poison, threads

STACKED = Shape((1, 20, 16), (2.0, 0.5, 1.0), 90, 1, 90, (Part(40, 0), Part(24), Part(21, 1), Part(40, 2), Part(8, 0)))
PLAIN = Shape((8,), (0.25,), 8 * 13, 8, 13, (Part(70, 0),))
UNEVEN = Shape((16,), (1.5,), 100, 8, 13, (Part(33, 0),))   # segments of 13 inputs, the last of 9
SHAPES = {"stacked": STACKED, "8 segments": PLAIN, "uneven segments": UNEVEN}


@pytest.fixture(params=kernel_sets.ALL_SETS)
def kernel_set(request, monkeypatch):
    """The tensors are on the device, for the kernels find what an adapter has by its address."""
    kernel_sets.use(monkeypatch, request.param, is_real=True)
    return request.param


def numbers(*shape: int, seed: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to(dispatch.device())


def matrices(shape: Shape, dtype: torch.dtype, seed: int) -> tuple[list[Tensor], list[Tensor | None]]:
    a = [numbers(rank, shape.in_features, seed=seed + 10 + i, dtype=dtype) for i, rank in enumerate(shape.ranks)]
    b = [None if part.factor is None else numbers(
        part.out_features, shape.ranks[part.factor], seed=seed + 20 + i, dtype=dtype)
        for i, part in enumerate(shape.parts)]
    return a, b


def make_adapter(shape: Shape | None, dtype: torch.dtype, seed: int):
    """It has nothing for the first of two linears."""
    shapes = [None, shape]
    memory = torch.empty(packed_bytes(shapes, dtype), dtype=torch.uint8, device=dispatch.device())
    memory.fill_(0xFF)
    return pack_adapter(shapes, dtype, lambda number: matrices(shape, dtype, seed), memory)


def exact(x: Tensor, shape: Shape, dtype: torch.dtype, seed: int) -> Tensor:
    a, b = matrices(shape, dtype, seed)
    return torch.cat([
        torch.zeros(len(x), part.out_features, dtype=torch.float64, device=x.device) if rows is None else
        shape.scales[part.factor] * (x.double() @ a[part.factor].double().t()) @ rows.double().t()
        for part, rows in zip(shape.parts, b, strict=True)], dim=1)


def make_rows(adapters, groups):
    return AdapterRows(torch.tensor(groups, dtype=torch.int32, device=dispatch.device()), tuple(adapters))


def deltas(x: Tensor, rows: AdapterRows, shape: Shape) -> Tensor:
    return expand(shrink(x, rows, 1), rows, 1, shape.out_features)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_is_near_the_exact_product(kernel_set, monkeypatch, shape, dtype):
    poison(monkeypatch)
    groups = [1, -1, 0, 2, 0, -1] if kernel_set == "gpu" else [1, -1, 0, 2, *[0] * 19, -1, 1]
    adapters = [make_adapter(shape, dtype, 0), make_adapter(shape, dtype, 1), make_adapter(None, dtype, 2)]
    x = numbers(len(groups), shape.in_features, seed=5, dtype=dtype)
    out = deltas(x, make_rows(adapters, groups), shape)
    for seed in (0, 1):
        own = torch.tensor([group == seed for group in groups])
        assert relative_rms(out[own], exact(x[own], shape, dtype, seed)) < 1e-6
    without = out[[group in (-1, 2) for group in groups]]
    assert torch.equal(without, torch.zeros_like(without))
    assert without.signbit().all()


@pytest.mark.parametrize("x_dtype", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_any_dtypes_go_together(kernel_set, x_dtype, dtype):
    x = numbers(3, UNEVEN.in_features, seed=5, dtype=x_dtype)
    out = deltas(x, make_rows([make_adapter(UNEVEN, dtype, 0)], [0, 0, 0]), UNEVEN)
    assert relative_rms(out, exact(x, UNEVEN, dtype, 0)) < 1e-6


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_row_has_the_same_bits_beside_any_others(kernel_set, shape, dtype):
    num_rows = 5 if kernel_set == "gpu" else 40
    groups = [(index * 7) % 4 - 1 for index in range(num_rows)]
    adapters = [make_adapter(shape, dtype, seed) for seed in range(3)]
    x = numbers(num_rows, shape.in_features, seed=5, dtype=dtype)
    rows = make_rows(adapters, groups)
    together = deltas(x, rows, shape)
    for row, group in enumerate(groups):
        if group >= 0:
            own = make_rows([adapters[group]], [0])
            assert torch.equal(deltas(x[row : row + 1], own, shape)[0], together[row])
            assert torch.equal(deltas(x[row : row + 1], rows.of(torch.tensor([row])), shape)[0], together[row])


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_change_no_bits(cpu_kernels, dtype):
    adapters = [make_adapter(STACKED, dtype, seed) for seed in range(3)]
    rows, x = make_rows(adapters, [i % 4 - 1 for i in range(70)]), numbers(70, 90, seed=5, dtype=dtype)
    expected = deltas(x, rows, STACKED)
    for count in (2, 3):
        with threads(count):
            assert torch.equal(deltas(x, rows, STACKED), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_sums_of_ranks_make_the_whole(kernel_set, monkeypatch, ranks, dtype):
    monkeypatch.setattr(dispatch._wishes, "is_deterministic", True)
    x = numbers(3, PLAIN.in_features, seed=5, dtype=dtype)
    (a,), b = matrices(PLAIN, dtype, 0)
    whole = shrink(x, make_rows([make_adapter(PLAIN, dtype, 0)], [0, -1, 0]), 1)
    sums = []
    for own_x, own_a in zip(x.chunk(ranks, 1), a.chunk(ranks, 1), strict=True):
        shape = Shape(PLAIN.ranks, PLAIN.scales, own_x.shape[1], 8 // ranks, PLAIN.width, PLAIN.parts)
        memory = torch.empty(packed_bytes([None, shape], dtype), dtype=torch.uint8, device=dispatch.device())
        adapter = pack_adapter([None, shape], dtype, lambda number, own_a=own_a: ([own_a], b), memory)
        sums.append(shrink(own_x.contiguous(), make_rows([adapter], [0, -1, 0]), 1))
    while len(sums) > 1:
        sums = [left + right for left, right in zip(sums[0::2], sums[1::2], strict=True)]
    assert torch.equal(sums[0], whole)


def test_nothing_for_a_linear(kernel_set):
    rows = make_rows([make_adapter(PLAIN, torch.float32, 0)], [0, -1])
    assert rows.rank(0) == 0
    assert rows.rank(1) == 16


def test_errors(kernel_set):
    rows = make_rows([make_adapter(PLAIN, torch.float32, 0)], [0, -1])
    with pytest.raises(ValueError, match=r"shrink: x has shape \[3, 104\], expected \[2, 104\]"):
        shrink(torch.ones(3, 104), rows, 1)
    with pytest.raises(ValueError, match=r"shrink: x has 100 inputs, an adapter's weight at site 1 104"):
        shrink(torch.ones(2, 100), rows, 1)
    with pytest.raises(ValueError, match=r"expand: shrunk has shape \[2, 8\], expected \[2, 16\]"):
        expand(torch.ones(2, 8), rows, 1, 70)
    with pytest.raises(ValueError, match=r"expand: expected 70 outputs for site 1, got 71"):
        expand(torch.ones(2, 16), rows, 1, 71)
    with pytest.raises(ValueError, match=r"AdapterRows: adapters for \[\] linears"):
        AdapterRows(torch.zeros(2, dtype=torch.int32), ())
    with pytest.raises(ValueError, match=r"AdapterRows: groups are torch.int64 \[1\]"):
        AdapterRows(torch.tensor([0]), rows.adapters)
