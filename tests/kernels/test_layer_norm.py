import pytest
import torch

from penstock.kernels.layer_norm import layer_norm, reference
from tests.kernels.accuracy import DTYPES, TOKEN_COUNTS, assert_rounded_once
from tests.kernels.compiled import assert_near, poison, threads

WIDTHS = (1, 5, 64, 257, 1000)


def tensors(num_tokens, width, dtype, groups=1):
    """Rows whose means are not 0, weights and biases."""
    generator = torch.Generator().manual_seed(1)
    x, residual = (torch.randn(2, num_tokens, width, generator=generator) + 0.5).to(dtype)
    weight, bias = torch.randn(2, groups, width, generator=generator).to(dtype)
    return x, residual, weight, bias


@pytest.mark.parametrize("kernel_set", ["reference"], indirect=True)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("num_tokens", TOKEN_COUNTS)
def test_values_are_rounded_once(num_tokens, width, dtype, kernel_set):
    x, residual, weight, bias = tensors(num_tokens, width, dtype)

    def exact(total):
        return torch.nn.functional.layer_norm(total.double(), (width,), weight[0].double(), bias[0].double(), 1e-5)

    normed, total = layer_norm(x, weight, bias, 1e-5)
    assert total is x
    assert normed.dtype == dtype
    assert_rounded_once(normed, exact(x))
    assert_rounded_once(layer_norm(x, weight, None, 1e-5)[0], exact(x) - bias.double())

    normed, total = layer_norm(x, weight, bias, 1e-5, residual)
    assert torch.equal(total, (x.double() + residual.double()).to(dtype))
    assert_rounded_once(normed, exact(total))


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("dtype", DTYPES)
def test_compiled_values(dtype, compiled_kernels, monkeypatch):
    poison(monkeypatch)
    for width in (*WIDTHS[1:], 16, 63, 128, 960):
        for num_tokens, groups in ((1, 1), (17, 1), (72, 6)):
            x, residual, weight, bias = tensors(num_tokens, width, dtype, groups)
            for own_weight, own_bias in ((weight, bias), (weight.float(), None)):
                normed, total = layer_norm(x, own_weight, own_bias, 1e-5)
                assert total is x
                assert normed.dtype == dtype
                assert_near(normed, reference.layer_norm(x.double(), own_weight, own_bias, 1e-5, None)[0])

                normed, total = layer_norm(x, own_weight, own_bias, 1e-5, residual)
                assert torch.equal(total, (x.float() + residual.float()).to(dtype))
                assert_near(normed, reference.layer_norm(total.double(), own_weight, own_bias, 1e-5, None)[0])


def test_each_row_has_the_weights_of_its_group(kernel_set):
    x, _, weight, bias = tensors(12, 40, torch.float32, groups=3)
    normed, _ = layer_norm(x, weight, bias, 1e-5)
    for group in range(3):
        own, _ = layer_norm(x[group::3].contiguous(), weight[group:group + 1], bias[group:group + 1], 1e-5)
        assert torch.equal(normed[group::3], own)


def test_rows_of_one_number_or_of_equal_ones(compiled_kernels):
    x = torch.tensor([[65504.0] * 40, [0.0] * 40]).half()
    weight, bias = torch.ones(1, 40), torch.full((1, 40), 0.5)
    assert torch.equal(layer_norm(x, weight, bias, 1e-6)[0], torch.full((2, 40), 0.5).half())


@pytest.mark.slow_in_interpreter
def test_a_row_has_the_same_bits_in_any_batch_and_with_any_threads(kernel_set):
    x, residual, weight, bias = tensors(100, 257, torch.bfloat16)
    rows = zip(x.split(1), residual.split(1), strict=True)
    alone = torch.cat([layer_norm(row, weight, bias, 1e-5, other)[0] for row, other in rows])
    for count in (1, 2, 3):
        with threads(count):
            assert torch.equal(layer_norm(x, weight, bias, 1e-5, residual)[0], alone)


def test_no_rows(kernel_set):
    normed, total = layer_norm(torch.empty(0, 8), torch.ones(1, 8), None, 1e-5, torch.empty(0, 8))
    assert normed.shape == total.shape == (0, 8)


def test_errors_name_the_shapes(kernel_set):
    x, weight = torch.ones(3, 8), torch.ones(1, 8)
    with pytest.raises(ValueError, match=r"layer_norm: weight has shape \[1, 7\], expected \[1, 8\]"):
        layer_norm(x, weight[:, :7], None, 1e-5)
    with pytest.raises(ValueError, match=r"layer_norm: weight \[2, 8\]: its rows must divide those of x \[3, 8\]"):
        layer_norm(x, weight.repeat(2, 1), None, 1e-5)
    with pytest.raises(ValueError, match=r"layer_norm: bias has shape \[1, 4\], expected \[1, 8\]"):
        layer_norm(x, weight, weight[:, :4], 1e-5)
    with pytest.raises(ValueError, match=r"layer_norm: residual has shape \[2, 8\], expected \[3, 8\]"):
        layer_norm(x, weight, None, 1e-5, x[:2])
    with pytest.raises(ValueError, match=r"layer_norm: weight has shape \[8\], expected \[G, C\]"):
        layer_norm(x, weight[0], None, 1e-5)
