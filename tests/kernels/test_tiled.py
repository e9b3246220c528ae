"""Linears in the processor's tiles, where it has them."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from penstock.kernels import native
from penstock.kernels.linear import linear, linear_apart, weight_rows
from penstock.kernels.linear.stacked import stack
from penstock.kernels.linear.tiled import SCALED, has_tiles, pack_tiled, pack_tiled_codes
from tests import kernel_sets
from tests.kernels.accuracy import DTYPES, relative_rms
from tests.kernels.compiled import poison, threads

SHAPES = [(1, 8), (3, 24), (65, 80), (130, 1000), (67, 8 * 45), (256, 704)]  # N, K
ROWS = (1, 7, 16, 17, 33, 70)
TOLERANCE = 2**-16  # a factor is off by 2^-17 at most, and the product of two low parts is left out


@pytest.fixture(autouse=True)
def _tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    if not native.may_use_tiles():
        pytest.skip("this processor has no tiles, or the system does not let processes use them")
    kernel_sets.use(monkeypatch, f"cpu-{native.TILES}")


def tensors(rows: int, shape: tuple[int, int], dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    outputs, inputs = shape
    x = torch.randn(rows, inputs, generator=generator)
    weight = torch.randn(outputs, inputs, generator=generator).to(dtype)
    return x, weight, torch.randn(outputs, generator=generator)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("segments", [1, 8])
@pytest.mark.parametrize("shape", SHAPES)
def test_is_near_the_exact_sum(monkeypatch, shape, segments, dtype):
    poison(monkeypatch)
    x, weight, bias = tensors(ROWS[-1], shape, dtype)
    packed, exact = pack_tiled(weight, segments), functional.linear(x.double(), weight.double(), bias.double())
    for rows in ROWS:
        assert relative_rms(linear(x[:rows], packed, bias), exact[:rows]) < TOLERANCE
    half = linear(x.bfloat16(), packed, out_dtype=torch.float32)
    assert relative_rms(half, functional.linear(x.bfloat16().double(), weight.double())) < TOLERANCE


@pytest.mark.parametrize("segments", [1, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bits_depend_neither_on_rows_nor_on_threads(dtype, segments):
    x, weight, bias = tensors(600, (130, 360), dtype)
    packed = pack_tiled(weight, segments)
    whole = linear(x, packed, bias)
    for count in (1, 3):
        with threads(count):
            for first, rows in ((0, 1), (3, 7), (1, 16), (0, 17), (15, 33), (511, 2), (0, 600)):
                own = linear(x[first : first + rows].contiguous(), packed, bias)
                assert torch.equal(own, whole[first : first + rows])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_ranks_add_up_to_the_whole(ranks, dtype):
    x, weight, _ = tensors(40, (70, 360), dtype)
    width, parts = 360 // ranks, []
    for first in range(0, 360, width):
        own = pack_tiled(weight[:, first : first + width].contiguous(), 8 // ranks)
        parts.append(linear(x[:, first : first + width].contiguous(), own, partial=True))
    while len(parts) > 1:
        parts = [left + right for left, right in zip(parts[::2], parts[1::2], strict=True)]
    assert torch.equal(parts[0], linear(x, pack_tiled(weight, 8)))


def test_a_row_of_no_numbers_changes_no_other():
    x, weight, bias = tensors(20, (70, 80), torch.float32)
    packed = pack_tiled(weight)
    expected = linear(x, packed, bias)
    x[3, 5], x[7, 1] = torch.nan, torch.inf
    found = linear(x, packed, bias)
    own = torch.tensor([row not in (3, 7) for row in range(20)])
    assert torch.equal(found[own], expected[own])
    assert not found[~own].isfinite().any()


def test_weights_one_below_the_other():
    x, weight, bias = tensors(20, (150, 80), torch.bfloat16)
    parts = torch.split(weight, [70, 80])
    both = linear(x, stack([pack_tiled(part.contiguous()) for part in parts]), bias)
    assert torch.equal(both, linear(x, pack_tiled(weight), bias))


def test_what_nothing_reads():
    packed = pack_tiled(torch.ones(3, 8))
    with pytest.raises(ValueError, match=r"the weight \[3, 8\] is in tiles, whose rows nothing reads"):
        weight_rows(packed, torch.tensor([0]))
    with pytest.raises(ValueError, match="linear_apart: TiledWeight has no sums apart"):
        linear_apart(torch.ones(1, 8), packed)


@pytest.mark.parametrize("path", native.processor_paths())
def test_another_path_has_none(monkeypatch, path):
    assert has_tiles()
    monkeypatch.setenv("KERNELS_PATH", path)
    assert not has_tiles()
    monkeypatch.delenv("KERNELS_PATH")
    assert has_tiles(), "where none is asked for, the best one is taken"


def test_where_there_are_none(monkeypatch):
    monkeypatch.setattr(native, "may_use_tiles", lambda: False)
    assert not has_tiles()
    with pytest.raises(ValueError, match=r"this processor has no amx, it runs "):
        native._chosen_path()


@pytest.mark.parametrize(("segments", "inputs"), [(1, 80), (8, 384), (8, 256)])
def test_codes_are_multiplied_as_what_they_make(monkeypatch, segments, inputs):
    poison(monkeypatch)
    generator = torch.Generator().manual_seed(5)
    codes = torch.randint(-127, 128, (70, inputs), generator=generator, dtype=torch.int8)
    scales = torch.rand(70, inputs // SCALED, generator=generator)
    weight = (codes.float() * scales.repeat_interleave(SCALED, dim=1)).bfloat16()
    x, packed = torch.randn(40, inputs, generator=generator), pack_tiled_codes(codes, scales, segments, torch.float32)
    with threads(2):
        assert torch.equal(linear(x, packed), linear(x, pack_tiled(weight, segments)))
