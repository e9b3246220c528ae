import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from penstock.kernels.rms_norm import reference, rms_norm
from tests.kernels.accuracy import DTYPES, TOKEN_COUNTS, assert_rounded_once, relative_rms
from tests.kernels.compiled import assert_near, poison, threads

WIDTHS = (1, 5, 64, 80, 257, 1000)


@pytest.mark.parametrize("kernel_set", ["reference"], indirect=True)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("num_tokens", TOKEN_COUNTS)
def test_values_are_rounded_once(num_tokens, width, dtype, kernel_set):
    generator = torch.Generator().manual_seed(1)
    x, residual = torch.randn(2, num_tokens, width, generator=generator).to(dtype)
    weight = torch.randn(width, generator=generator).to(dtype)

    def exact(total):
        total = total.double()
        return total / (total.pow(2).mean(dim=1, keepdim=True) + 1e-5).sqrt() * weight.double()

    normed, total = rms_norm(x, weight, 1e-5)
    assert total is x
    assert normed.dtype == dtype
    assert_rounded_once(normed, exact(x))

    normed, total = rms_norm(x, weight, 1e-5, residual)
    assert torch.equal(total, (x.double() + residual.double()).to(dtype))
    assert normed.dtype == dtype
    assert_rounded_once(normed, exact(total))


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("dtype", DTYPES)
def test_compiled_values(dtype, compiled_kernels, monkeypatch):
    poison(monkeypatch)
    generator = torch.Generator().manual_seed(1)
    for width in (*WIDTHS, 16, 63, 128, 960):
        for num_tokens in (1, 17, 70):
            x, residual = torch.randn(2, num_tokens, width, generator=generator).to(dtype)
            for weight_dtype in (torch.float32, dtype):
                weight = torch.randn(width, generator=generator).to(weight_dtype)
                normed, total = rms_norm(x, weight, 1e-5)
                assert total is x
                assert normed.dtype == dtype
                assert_near(normed, reference.rms_norm(x.double(), weight, 1e-5, None)[0])

                normed, total = rms_norm(x, weight, 1e-5, residual)
                assert torch.equal(total, (x.float() + residual.float()).to(dtype))
                assert_near(normed, reference.rms_norm(total.double(), weight, 1e-5, None)[0])


def test_many_short_rows(cpu_kernels):
    x, weight = torch.randn(4000, 64, generator=torch.Generator().manual_seed(9)), torch.ones(64)
    assert_near(rms_norm(x, weight, 1e-6)[0], reference.rms_norm(x.double(), weight, 1e-6, None)[0])


def test_large_and_small_rows(compiled_kernels):
    """Squares that float16 could not hold, which no other row sees, and a row of zeros."""
    x = torch.tensor([[6e-8, 6e-8, 6e-8], [65504.0, -65504.0, 65504.0], [0.0, 0.0, 0.0]]).half()
    assert_near(rms_norm(x, torch.ones(3), 1e-6)[0], reference.rms_norm(x.double(), torch.ones(3), 1e-6, None)[0])


def test_threads_change_no_bits(cpu_kernels):
    x, residual = torch.randn(2, 333, 257, generator=torch.Generator().manual_seed(4)).bfloat16()
    results = []
    for count in (1, 2, 3):
        with threads(count):
            results.append(rms_norm(x, torch.ones(257), 1e-5, residual))
    assert all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))


def test_no_rows(kernel_set):
    normed, total = rms_norm(torch.empty(0, 8), torch.ones(8), 1e-5, torch.empty(0, 8))
    assert normed.shape == total.shape == (0, 8)


def test_as_transformers(kernel_set):
    x = torch.randn(17, 256, generator=torch.Generator().manual_seed(2))
    norm = LlamaRMSNorm(256, eps=1e-6)
    torch.nn.init.normal_(norm.weight, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        assert relative_rms(rms_norm(x, norm.weight.data, 1e-6)[0], norm(x).double()) < 1.5e-7


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_has_the_same_bits_in_any_batch(dtype, kernel_set):
    x, residual = torch.randn(2, 100, 257, generator=torch.Generator().manual_seed(4)).to(dtype)
    weight = torch.ones(257, dtype=dtype)
    batch, _ = rms_norm(x, weight, 1e-5)
    assert torch.equal(batch, torch.cat([rms_norm(row[None], weight, 1e-5)[0] for row in x]))
    batch, _ = rms_norm(x, weight, 1e-5, residual)
    rows = zip(x.split(1), residual.split(1), strict=True)
    assert torch.equal(batch, torch.cat([rms_norm(row, weight, 1e-5, other)[0] for row, other in rows]))


def test_errors_name_the_shapes(kernel_set):
    x, weight = torch.ones(3, 8), torch.ones(8)
    with pytest.raises(ValueError, match=r"rms_norm: weight has shape \[7\], expected \[8\]"):
        rms_norm(x, weight[:7], 1e-5)
    with pytest.raises(ValueError, match=r"rms_norm: residual has shape \[2, 8\], expected \[3, 8\]"):
        rms_norm(x, weight, 1e-5, x[:2])
    with pytest.raises(ValueError, match=r"rms_norm: residual \[3, 8\] has dtype torch.float16, expected"):
        rms_norm(x, weight, 1e-5, x.half())
    with pytest.raises(ValueError, match=r"rms_norm: x has shape \[8\], expected \[T, C\]"):
        rms_norm(weight, weight, 1e-5)
