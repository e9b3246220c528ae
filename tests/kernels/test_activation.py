from types import SimpleNamespace

import pytest
import torch
from transformers.activations import ACT2FN
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts

from penstock.kernels.activation import Activation, activate, activate_gate, reference
from tests.kernels.accuracy import DTYPES, TOKEN_COUNTS, assert_rounded_once, relative_rms
from tests.kernels.compiled import assert_near, poison, threads

NAMES = {
    Activation.SILU: "silu", Activation.GELU: "gelu", Activation.GELU_TANH: "gelu_pytorch_tanh",
    Activation.GELU_SIGMOID: "quick_gelu", Activation.SIGMOID: "sigmoid",
    Activation.RELU: "relu", Activation.RELU_SQUARED: "relu2"}
"""In transformers, whose results of -5 and less may have no digit left."""


def numbers(num_tokens, width, dtype=torch.float32):
    return (3 * torch.randn(num_tokens, width, generator=torch.Generator().manual_seed(6))).to(dtype)


def test_as_transformers():
    x = torch.linspace(-5, 5, 1001, dtype=torch.float64)
    for activation, name in NAMES.items():
        torch.testing.assert_close(reference.activate(x[None], activation)[0], ACT2FN[name](x), rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("kernel_set", ["reference"], indirect=True)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", NAMES)
@pytest.mark.parametrize("num_tokens", TOKEN_COUNTS)
def test_values_are_rounded_once(num_tokens, activation, dtype, kernel_set):
    for width in (7, 64, 704):
        gate_up = numbers(num_tokens, 2 * width, dtype)
        gate, up = gate_up[:, :width].contiguous(), gate_up[:, width:]
        out = activate_gate(gate_up, activation)
        assert out.dtype == dtype
        assert out.is_contiguous()
        exact = reference.activate(gate.double(), activation)
        assert_rounded_once(out, exact * up.double())
        assert_rounded_once(activate(gate, activation), exact)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", NAMES)
@pytest.mark.slow_in_interpreter
def test_compiled_values(dtype, activation, compiled_kernels, monkeypatch):
    poison(monkeypatch)
    for width in (8, 15, 16, 17, 100, 704):
        for num_tokens in (1, 17, 70):
            gate_up = numbers(num_tokens, 2 * width, dtype)
            out = activate_gate(gate_up, activation)
            assert (out.dtype, out.shape) == (dtype, (num_tokens, width))
            assert_near(out, reference.activate_gate(gate_up.double(), activation))
            alone = activate(gate_up, activation)
            assert (alone.dtype, alone.shape) == (dtype, gate_up.shape)
            assert_near(alone, reference.activate(gate_up.double(), activation))


@pytest.mark.parametrize(("activation", "bound"), [
    (Activation.SILU, 5e-7), (Activation.GELU, 8e-7), (Activation.GELU_TANH, 1.2e-5), (Activation.GELU_SIGMOID, 3e-6),
    (Activation.RELU, 0), (Activation.RELU_SQUARED, 1e-7)])
def test_every_number_is_near(activation, bound, cpu_kernels):
    """Numbers of all sizes, each to about float32's precision by itself, down to results of 1e-13: where an exponent is
    rounded before its power is taken, the error grows with its size."""
    sizes = torch.cat([torch.linspace(0, 12, 20001), torch.logspace(-30, 1, 999)])
    x = torch.cat([sizes, -sizes])
    exact = reference.activate(x.double()[None], activation)[0]
    out = activate(x[None], activation)[0].double()
    assert ((out - exact).abs() <= bound * exact.abs() + 1e-19).all()


@pytest.mark.parametrize("activation", NAMES)
@pytest.mark.slow_in_interpreter
def test_a_row_has_the_same_bits_in_any_batch_and_with_any_threads(activation, kernel_set):
    gate_up = numbers(100, 2 * 101)
    alone = torch.cat([activate_gate(row[None], activation) for row in gate_up])
    single = torch.cat([activate(row[None], activation) for row in gate_up])
    for count in (1, 2, 3):
        with threads(count):
            assert torch.equal(activate_gate(gate_up, activation), alone)
            assert torch.equal(activate(gate_up, activation), single)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_gate_with_bounds(dtype, compiled_kernels, monkeypatch):
    """As gpt-oss computes it, whose gates and ups alternate."""
    poison(monkeypatch)
    gate_up = 2 * numbers(70, 2 * 50, dtype)
    gate, up = (half.double() for half in gate_up.chunk(2, dim=1))
    bounds = SimpleNamespace(limit=7.0, alpha=1.702)
    theirs = GptOssExperts._apply_gate(bounds, torch.stack([gate, up], 2).flatten(1))
    error = relative_rms(activate_gate(gate_up, Activation.CLAMPED_SWIGLU), theirs)
    assert error <= 1.02 * relative_rms(theirs.to(dtype), theirs) + 3e-7
    with pytest.raises(ValueError, match="activate: clamped_swiglu is for gates alone"):
        activate(gate_up, Activation.CLAMPED_SWIGLU)


def test_no_rows(kernel_set):
    assert activate_gate(torch.empty(0, 8), Activation.SILU).shape == (0, 4)
    assert activate(torch.empty(0, 8), Activation.GELU).shape == (0, 8)


@pytest.mark.parametrize("activation", NAMES)
def test_large_numbers(activation, kernel_set):
    large = 100.0 if activation is Activation.RELU_SQUARED else 1e4
    x = torch.tensor([[large, -1e4, 0.0]], dtype=torch.bfloat16)
    top = (x[0, 0] * x[0, 0] if activation is Activation.RELU_SQUARED else x[0, 0]).item()
    is_sigmoid = activation is Activation.SIGMOID
    assert activate(x, activation).tolist() == [[1.0, 0.0, 0.5] if is_sigmoid else [top, 0.0, 0.0]]


def test_errors_name_the_shapes(kernel_set):
    with pytest.raises(ValueError, match=r"activate_gate: gate_up has shape \[3, 5\], its width must be even"):
        activate_gate(torch.ones(3, 5), Activation.SILU)
    with pytest.raises(ValueError, match=r"activate_gate: gate_up has shape \[6\], expected \[T, 2 \* I\]"):
        activate_gate(torch.ones(6), Activation.SILU)
    with pytest.raises(ValueError, match=r"activate: x has shape \[6\], expected \[T, I\]"):
        activate(torch.ones(6), Activation.SILU)
    with pytest.raises(ValueError, match=r"activate: x \[3, 4\] has dtype torch.int32"):
        activate(torch.ones(3, 4).int(), Activation.SILU)
