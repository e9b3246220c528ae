"""Sums of rows, one after the other, on all kernel sets: the same bits on each."""

import pytest
import torch
from torch import Tensor

from penstock.kernels.segment_sum import segment_sum
from tests.kernel_sets import PROCESSOR_SETS
from tests.kernels.accuracy import DTYPES
from tests.kernels.compiled import threads

COUNTS = [1, 0, 40, 3]


def made(width: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(sum(COUNTS), width, generator=torch.Generator().manual_seed(1)).to(dtype)


def added(x: Tensor, counts: list[int], sums: Tensor | None = None) -> Tensor:
    sums = torch.zeros(len(counts), x.shape[1]) if sums is None else sums
    segment_sum(x, torch.tensor(counts, dtype=torch.int32), sums)
    return sums


def one_by_one(x: Tensor, counts: list[int]) -> Tensor:
    sums, rows = torch.zeros(len(counts), x.shape[1]), iter(x.float())
    for total, count in zip(sums, counts, strict=True):
        for _ in range(count):
            total += next(rows)
    return sums


@pytest.mark.parametrize("width", [1, 17, 130])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_are_those_of_one_addition_after_the_other(kernel_set, dtype, width):
    x = made(width, dtype)
    for count in (1, 3):
        with threads(count):
            assert torch.equal(added(x, COUNTS), one_by_one(x, COUNTS))


def test_rows_that_come_in_parts_have_the_sum_of_the_whole(kernel_set):
    x = made(20)[:30]
    sums = torch.zeros(1, 20)
    for part in x.split([7, 1, 22]):
        added(part, [len(part)], sums)
    assert torch.equal(sums, added(x, [30]))


def test_many_segments_on_several_threads(cpu_kernels):
    x = torch.randn(500, 300, generator=torch.Generator().manual_seed(2))
    with threads(3):
        assert torch.equal(added(x, [5] * 100), one_by_one(x, [5] * 100))


def test_nothing_to_add(kernel_set):
    assert torch.equal(added(torch.empty(0, 8), [0, 0]), torch.zeros(2, 8))
    assert added(torch.empty(0, 8), []).shape == (0, 8)


@pytest.mark.parametrize("kernel_set", PROCESSOR_SETS, indirect=True)
@pytest.mark.parametrize("counts", [[2], [4, -1]])
def test_counts_of_other_rows(kernel_set, counts):
    """A GPU does not look at them."""
    with pytest.raises(ValueError, match=r"segment_sum: x has 3 rows, counts are \["):
        added(torch.ones(3, 4), counts)


def test_errors_name_the_shapes(kernel_set):
    with pytest.raises(ValueError, match=r"segment_sum: sums has shape \[2, 4\], expected \[1, 4\]"):
        added(torch.ones(3, 4), [3], torch.zeros(2, 4))
