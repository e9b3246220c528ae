import pytest
import torch

from penstock.kernels.silu_mul import reference, silu_mul
from tests.kernels.accuracy import DTYPES, TOKEN_COUNTS, assert_rounded_once
from tests.kernels.compiled import assert_near, poison, threads


@pytest.mark.parametrize("kernel_set", ["reference"], indirect=True)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 7, 64, 704])
@pytest.mark.parametrize("num_tokens", TOKEN_COUNTS)
def test_values_are_rounded_once(num_tokens, width, dtype, kernel_set):
    gate_up = (3 * torch.randn(num_tokens, 2 * width, generator=torch.Generator().manual_seed(6))).to(dtype)
    gate, up = gate_up[:, :width].double(), gate_up[:, width:].double()
    out = silu_mul(gate_up)
    assert out.dtype == dtype
    assert out.is_contiguous()
    assert_rounded_once(out, gate / (1 + torch.exp(-gate)) * up)


@pytest.mark.parametrize("dtype", DTYPES)
def test_compiled_values(dtype, compiled_kernels, monkeypatch):
    poison(monkeypatch)
    generator = torch.Generator().manual_seed(6)
    for width in (1, 7, 15, 16, 17, 64, 100, 704):
        for num_tokens in (1, 17, 70):
            gate_up = (3 * torch.randn(num_tokens, 2 * width, generator=generator)).to(dtype)
            out = silu_mul(gate_up)
            assert (out.dtype, out.shape) == (dtype, (num_tokens, width))
            assert_near(out, reference.silu_mul(gate_up.double()))


def test_every_gate_is_near(cpu_kernels):
    """Gates of all sizes, each to float32's precision by itself."""
    gate = torch.cat([torch.linspace(-86, 86, 20001), torch.logspace(-30, 1, 999), -torch.logspace(-30, 1, 999)])
    out = silu_mul(torch.cat([gate, torch.ones_like(gate)])[None])[0].double()
    exact = torch.nn.functional.silu(gate.double())
    assert ((out - exact).abs() <= 5e-7 * exact.abs()).all()


def test_a_row_has_the_same_bits_in_any_batch_and_with_any_threads(kernel_set):
    gate_up = torch.randn(300, 2 * 101, generator=torch.Generator().manual_seed(8))
    alone = torch.cat([silu_mul(row[None]) for row in gate_up])
    for count in (1, 2, 3):
        with threads(count):
            assert torch.equal(silu_mul(gate_up), alone)


def test_no_rows(kernel_set):
    assert silu_mul(torch.empty(0, 8)).shape == (0, 4)


def test_large_gates(kernel_set):
    gate_up = torch.tensor([[1e4, -1e4, 0.0, 2.0, 2.0, 2.0]], dtype=torch.bfloat16)
    assert silu_mul(gate_up).tolist() == [[torch.tensor(1e4, dtype=torch.bfloat16).item() * 2, 0.0, 0.0]]


def test_errors_name_the_shapes(kernel_set):
    with pytest.raises(ValueError, match=r"silu_mul: gate_up has shape \[3, 5\], its width must be even"):
        silu_mul(torch.ones(3, 5))
    with pytest.raises(ValueError, match=r"silu_mul: gate_up has shape \[6\], expected \[T, 2 \* I\]"):
        silu_mul(torch.ones(6))
