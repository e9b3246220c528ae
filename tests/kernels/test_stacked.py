"""Weights of several formats as one."""

import pytest
import torch

from penstock.kernels.linear import linear, pack, weight_rows
from penstock.kernels.linear.stacked import stack
from penstock.kernels.quantised_linear import pack_coded
from penstock.kernels.quantised_linear.activations import Activations
from tests.kernels.coded import make


def parts(segments):
    generator = torch.Generator().manual_seed(0)
    dense = pack(torch.randn(70, 320, generator=generator).bfloat16(), segments)
    coded = [pack_coded(make(name, outputs, 320), segments, Activations.INT8, torch.bfloat16)
             for name, outputs in (("q4_0", 33), ("q6_k", 64))]
    return [coded[0], dense, coded[1]]


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("segments", [1, 8])
def test_a_stack_gives_each_parts_bits(kernel_set, segments):
    generator, weights = torch.Generator().manual_seed(1), parts(segments)
    stacked = stack(weights)
    x, bias = torch.randn(9, 320, generator=generator).bfloat16(), torch.randn(167, generator=generator)
    each = [linear(x, part, own, torch.float32) for part, own in zip(weights, bias.split((33, 70, 64)), strict=True)]
    assert torch.equal(linear(x, stacked, bias, torch.float32), torch.cat(each, dim=1))
    partial = [linear(x, part, partial=True) for part in weights]
    assert torch.equal(linear(x, stacked, partial=True), torch.cat(partial, dim=1))


@pytest.mark.parametrize("segments", [1, 8])
def test_compiled_stacks_give_each_parts_bits(cpu_kernels, segments):
    """As `fused` calls them: in one call, by one address."""
    from penstock.kernels import native

    generator, weights = torch.Generator().manual_seed(1), parts(segments)
    stacked = stack(weights)
    x, bias = torch.randn(9, 320, generator=generator).bfloat16(), torch.randn(167, generator=generator)
    out = torch.full((9, 167), torch.nan)
    native.library.linear(x.data_ptr(), native.DTYPES[x.dtype], 9, stacked.compiled.data_ptr(), bias.data_ptr(), 0,
                          out.data_ptr(), 0)
    assert torch.equal(out, linear(x, stacked, bias, torch.float32))


def test_one_weight_is_itself(kernel_set):
    weight = parts(1)[0]
    assert stack([weight]) is weight


def test_what_does_not_belong_together_is_refused(kernel_set):
    with pytest.raises(ValueError, match="stack: weights of different inputs, segments or dtypes"):
        stack([parts(1)[0], parts(8)[1]])
    with pytest.raises(ValueError, match=r"weight_rows: the weight \[167, 320\] is a stack of 3"):
        weight_rows(stack(parts(1)), torch.tensor([0]))
