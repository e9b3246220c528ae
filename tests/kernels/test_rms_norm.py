import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from kernels.rms_norm import rms_norm
from tests.kernels.accuracy import DTYPES, TOKEN_COUNTS, assert_rounded_once, relative_rms

WIDTHS = (1, 5, 64, 80, 257, 1000)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("num_tokens", TOKEN_COUNTS)
def test_values(num_tokens, width, dtype):
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


def test_as_transformers():
    x = torch.randn(17, 256, generator=torch.Generator().manual_seed(2))
    norm = LlamaRMSNorm(256, eps=1e-6)
    torch.nn.init.normal_(norm.weight, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        assert relative_rms(rms_norm(x, norm.weight.data, 1e-6)[0], norm(x).double()) < 1e-7


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_has_the_same_bits_in_any_batch(dtype):
    x = torch.randn(100, 257, generator=torch.Generator().manual_seed(4)).to(dtype)
    weight = torch.ones(257, dtype=dtype)
    batch, _ = rms_norm(x, weight, 1e-5)
    assert torch.equal(batch, torch.cat([rms_norm(row[None], weight, 1e-5)[0] for row in x]))


def test_errors_name_the_shapes():
    x, weight = torch.ones(3, 8), torch.ones(8)
    with pytest.raises(ValueError, match=r"rms_norm: weight has shape \[7\], expected \[8\]"):
        rms_norm(x, weight[:7], 1e-5)
    with pytest.raises(ValueError, match=r"rms_norm: residual has shape \[2, 8\], expected \[3, 8\]"):
        rms_norm(x, weight, 1e-5, x[:2])
    with pytest.raises(ValueError, match=r"rms_norm: residual \[3, 8\] has dtype torch.float16, expected"):
        rms_norm(x, weight, 1e-5, x.half())
    with pytest.raises(ValueError, match=r"rms_norm: x has shape \[8\], expected \[T, C\]"):
        rms_norm(weight, weight, 1e-5)
