import pytest
import torch

from penstock.kernels.softcap import softcap
from tests.kernels.compiled import poison, threads


def test_values(kernel_set, monkeypatch):
    poison(monkeypatch)
    x = torch.cat([torch.linspace(-200, 200, 801), torch.tensor([1e30, -1e30, 0.0, 1e-20])])[None]
    for cap in (1.0, 30.0):
        out = softcap(x, cap)
        assert out.dtype == torch.float32
        torch.testing.assert_close(out.double(), cap * (x.double() / cap).tanh(), rtol=0, atol=2e-7 * cap)
        assert out.abs().max() <= cap


def test_a_row_has_the_same_bits_in_any_batch_and_with_any_threads(kernel_set):
    x = 20 * torch.randn(50, 257, generator=torch.Generator().manual_seed(4))
    alone = torch.cat([softcap(row[None], 8.0) for row in x])
    for count in (1, 2, 3):
        with threads(count):
            assert torch.equal(softcap(x, 8.0), alone)


def test_no_rows(kernel_set):
    assert softcap(torch.empty(0, 8), 1.0).shape == (0, 8)


def test_errors(kernel_set):
    with pytest.raises(ValueError, match=r"softcap: x has shape \[8\], expected \[R, N\]"):
        softcap(torch.ones(8), 1.0)
    with pytest.raises(ValueError, match=r"softcap: x \[2, 8\] has dtype torch.bfloat16"):
        softcap(torch.ones(2, 8).bfloat16(), 1.0)
    with pytest.raises(ValueError, match=r"softcap: cap 0 must be above 0"):
        softcap(torch.ones(2, 8), 0)
