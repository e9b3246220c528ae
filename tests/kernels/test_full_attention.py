"""Attention without a mask and without a cache, on all kernel sets: torch's numbers, and bits of its own."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from penstock.kernels.full_attention import full_attention
from tests.kernels.compiled import poison, threads

LENGTHS = [1, 17, 5, 66]
TOLERANCES = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}


def made(lengths: list[int], dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(sum(lengths), heads, 24, generator=generator).to(dtype) for heads in (4, 2, 2)]


def attend(q: Tensor, k: Tensor, v: Tensor, lengths: list[int]) -> Tensor:
    return full_attention(q, k, v, torch.tensor(lengths, dtype=torch.int32), scale=0.2)


def alone(tensors: list[Tensor], lengths: list[int]) -> Tensor:
    parts = zip(*(tensor.split(lengths) for tensor in tensors), strict=True)
    return torch.cat([attend(*part, [length]) for part, length in zip(parts, lengths, strict=True)])


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_values_are_those_of_torch(kernel_set, monkeypatch, dtype):
    poison(monkeypatch)
    tensors = made(LENGTHS, dtype)
    parts = zip(*(tensor.double().transpose(0, 1).split(LENGTHS, 1) for tensor in tensors), strict=True)
    expected = torch.cat([scaled_dot_product_attention(q, k, v, scale=0.2, enable_gqa=True) for q, k, v in parts], 1)
    found = attend(*tensors, LENGTHS)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected.transpose(0, 1), rtol=0, atol=TOLERANCES[dtype])


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
    ("counts", torch.ones(1), r"full_attention: counts \[1\] has dtype torch.float32, expected torch.int32")])
def test_errors(kernel_set, name, broken, says):
    q, k, v = made([3])
    arguments = {"q": q, "k": k, "v": v, "counts": torch.tensor([3], dtype=torch.int32), name: broken}
    with pytest.raises(ValueError, match=says):
        full_attention(**arguments, scale=1.0)
