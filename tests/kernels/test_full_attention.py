"""Attention without a mask and without a cache, on all kernel sets: torch's numbers, and bits of its own."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from penstock.kernels.full_attention import full_attention
from tests.kernel_sets import PROCESSOR_SETS
from tests.kernels.compiled import poison, threads

LENGTHS = [1, 17, 5, 66]
TOLERANCES = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}


def made(lengths: list[int], dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(sum(lengths), heads, 24, generator=generator).to(dtype) for heads in (4, 2, 2)]


def attend(q: Tensor, k: Tensor, v: Tensor, lengths: list[int], window: int = 0, bias: Tensor | None = None) -> Tensor:
    counts = torch.tensor(lengths, dtype=torch.int32)
    return full_attention(q, k, v, counts, scale=0.2, window=window, bias=bias)


def alone(tensors: list[Tensor], lengths: list[int], window: int = 0, bias: Tensor | None = None) -> Tensor:
    parts = zip(*(tensor.split(lengths) for tensor in tensors), strict=True)
    return torch.cat([attend(*part, [length], window, bias) for part, length in zip(parts, lengths, strict=True)])


def exact(tensors: list[Tensor], lengths: list[int], window: int = 0, bias: Tensor | None = None) -> Tensor:
    """What torch makes of it, in float64."""
    found = []
    for q, k, v in zip(*(tensor.double().transpose(0, 1).split(lengths, 1) for tensor in tensors), strict=True):
        position = torch.arange(q.shape[1])
        distance = position - position[:, None]
        mask = torch.zeros(q.shape[0], *distance.shape, dtype=torch.float64)
        if bias is not None:
            mask += bias[:, distance.clamp(-(bias.shape[1] // 2), bias.shape[1] // 2) + bias.shape[1] // 2]
        if window:
            mask = mask.masked_fill(distance.abs() > window, -torch.inf)
        found.append(scaled_dot_product_attention(q, k, v, mask, scale=0.2, enable_gqa=True))
    return torch.cat(found, 1).transpose(0, 1)


def biases(reach: int) -> Tensor:
    return torch.randn(4, 2 * reach + 1, generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_values_are_those_of_torch(kernel_set, monkeypatch, dtype):
    poison(monkeypatch)
    tensors = made(LENGTHS, dtype)
    found = attend(*tensors, LENGTHS)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), exact(tensors, LENGTHS), rtol=0, atol=TOLERANCES[dtype])


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize(("window", "reach"), [(3, None), (0, 5), (70, 100), (20, 0)])
def test_values_with_a_window_and_a_bias(kernel_set, monkeypatch, dtype, window, reach):
    poison(monkeypatch)
    tensors, bias = made([90, 3, 33], dtype), None if reach is None else biases(reach)
    found = attend(*tensors, [90, 3, 33], window, bias)
    torch.testing.assert_close(found.double(), exact(tensors, [90, 3, 33], window, bias), rtol=0,
                               atol=2 * TOLERANCES[dtype])
    assert torch.equal(found, alone(tensors, [90, 3, 33], window, bias))


def test_long_sequences(cpu_kernels):
    """Their segments are computed apart, and several threads share them."""
    lengths = [1100, 40, 530]
    tensors, bias = made(lengths), biases(8)
    for window in (0, 515):
        expected = attend(*tensors, lengths, window, bias)
        torch.testing.assert_close(expected.double(), exact(tensors, lengths, window, bias), rtol=0, atol=4e-6)
        with threads(3):
            assert torch.equal(attend(*tensors, lengths, window, bias), expected)
            assert torch.equal(alone(tensors, lengths, window, bias), expected)


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_nothing_outside_the_window_is_seen(kernel_set, dtype):
    q, k, v = made([80], dtype)
    before = attend(q, k, v, [80], 5)
    v[30], k[30] = torch.nan, torch.inf
    found = attend(q, k, v, [80], 5)
    sees = (torch.arange(80) - 30).abs() <= 5
    assert torch.equal(found[~sees], before[~sees])
    assert found[sees].isnan().all()


def test_strided_rows(kernel_set):
    """The three lie side by side, as one product makes them."""
    q, k, v = made([21])
    joined = torch.cat([q, k, v], 1)
    found = attend(joined[:, :4], joined[:, 4:6], joined[:, 6:], [21])
    assert torch.equal(found, attend(q, k, v, [21]))


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_a_sequence_has_the_same_bits_alone_and_beside_others(kernel_set, dtype):
    tensors = made(LENGTHS, dtype)
    expected = alone(tensors, LENGTHS)
    for count in (1, 3):
        with threads(count):
            assert torch.equal(attend(*tensors, LENGTHS), expected)


@pytest.mark.slow_in_interpreter
def test_every_token_sees_the_last_one(kernel_set):
    q, k, v = made([40])
    before = attend(q, k, v, [40])
    v[-1] += 1
    assert (attend(q, k, v, [40]) != before).any(dim=(1, 2)).all()


@pytest.mark.slow_in_interpreter
def test_nothing_of_another_sequence_is_seen(kernel_set):
    q, k, v = made([20, 30])
    before = attend(q, k, v, [20, 30])
    v[20:] = torch.nan
    assert torch.equal(attend(q, k, v, [20, 30])[:20], before[:20])


def test_sequences_without_tokens(kernel_set):
    tensors = made([3])
    assert torch.equal(attend(*tensors, [0, 3, 0]), attend(*tensors, [3]))
    assert attend(*made([]), []).shape == (0, 4, 24)


@pytest.mark.parametrize(("name", "broken", "says"), [
    ("k", torch.ones(3, 2, 8), r"full_attention: k has shape \[3, 2, 8\], expected \[3, 2, 24\]"),
    ("v", torch.ones(3, 2, 24).half(), r"full_attention: v \[3, 2, 24\] has dtype torch.float16"),
    ("counts", torch.ones(1), r"full_attention: counts \[1\] has dtype torch.float32, expected torch.int32"),
    ("window", -1, "full_attention: window -1 must not be negative"),
    ("bias", torch.ones(4, 6), r"full_attention: bias has shape \[4, 6\], expected \[4, 7\]")])
def test_errors(kernel_set, name, broken, says):
    q, k, v = made([3])
    arguments = {"q": q, "k": k, "v": v, "counts": torch.tensor([3], dtype=torch.int32), name: broken}
    with pytest.raises(ValueError, match=says):
        full_attention(**arguments, scale=1.0)  # type: ignore[arg-type]


def test_heads_that_do_not_fit(kernel_set):
    q, k, v = made([3])
    with pytest.raises(ValueError, match=r"q \[3, 3, 24\] has 3 heads, no multiple of the 2 of k"):
        attend(q[:, :3].contiguous(), k, v, [3])


@pytest.mark.parametrize("kernel_set", PROCESSOR_SETS, indirect=True)
@pytest.mark.parametrize("lengths", [[2], [4, -1], []])
def test_counts_of_other_rows(kernel_set, lengths):
    """A GPU does not look at them."""
    with pytest.raises(ValueError, match=r"full_attention: q has 3 rows, counts are \["):
        attend(*made([3]), lengths)
