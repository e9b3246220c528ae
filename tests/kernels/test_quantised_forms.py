"""Every instruction path, with and without its dot products of bytes, gives the same sums of whole numbers."""

import functools
from collections.abc import Callable, Iterator

import pytest
import torch

from penstock.kernels import native
from penstock.kernels.linear import linear
from penstock.kernels.quantised_linear import pack_coded
from penstock.kernels.quantised_linear.activations import Activations
from tests import kernel_sets
from tests.kernels.coded import KINDS, make

WIDTH, SEGMENTS = 640, 8
WHOLE = [name for name, kind in KINDS.items() if kind.is_whole]
FORMS = [(path, is_used) for path in native.processor_paths() for is_used in (False, True)]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, bool], None]]:
    def choose(path: str, uses_dot_products: bool) -> None:
        kernel_sets.use(monkeypatch, f"cpu-{path}")
        native.library.use_dot_products(int(uses_dot_products))

    yield choose
    for path in native.processor_paths():
        native.load(path).use_dot_products(1)


def inputs(rows: int) -> torch.Tensor:
    x = torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(1)).bfloat16()
    x[3, 100], x[5, 17], x[5, 300], x[6] = torch.nan, torch.inf, -torch.inf, 0
    return x


def sums(name: str, x: torch.Tensor, ranks: int) -> torch.Tensor:
    """Returns what the ranks' sums add up to, in the tree that they are added in."""
    coded, width, parts = make(name, 70, WIDTH), WIDTH // ranks, []
    for first in range(0, WIDTH, width):
        columns = slice(first, first + width)
        packed = pack_coded(coded.inputs(columns), SEGMENTS // ranks, Activations.INT8, torch.bfloat16)
        parts.append(linear(x[:, columns].contiguous(), packed, out_dtype=torch.float32))
    while len(parts) > 1:
        parts = [left + right for left, right in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


equal = functools.partial(torch.testing.assert_close, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", WHOLE)
def test_all_forms_give_the_same_bits(use: Callable[[str, bool], None], name: str) -> None:
    x = inputs(40)
    use(*FORMS[0])
    expected = sums(name, x, 1)
    assert expected.isnan().any(dim=1).nonzero().flatten().tolist() == [3, 5]
    for form in FORMS:
        use(*form)
        for rows in (1, 4, 7, 40):
            equal(sums(name, x[:rows], 1), expected[:rows])
        for ranks in (2, 4, 8):
            equal(sums(name, x, ranks), expected)
