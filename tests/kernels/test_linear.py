import pytest
import torch
from torch.nn import functional

from kernels.linear import linear, pack
from tests.kernels.accuracy import DTYPES, TOKEN_COUNTS, assert_rounded_once

SHAPES = [(1, 8), (3, 24), (65, 80), (256, 704), (130, 1000)]  # N, K


def tensors(num_tokens, shape, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    out_features, in_features = shape
    x = torch.randn(num_tokens, in_features, generator=generator).to(dtype)
    weight = torch.randn(out_features, in_features, generator=generator).to(dtype)
    return x, weight, torch.randn(out_features, generator=generator).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("num_tokens", TOKEN_COUNTS)
def test_one_segment_is_rounded_once(num_tokens, shape, dtype):
    x, weight, bias = tensors(num_tokens, shape, dtype)
    exact = functional.linear(x.double(), weight.double())
    packed = pack(weight)
    assert (packed.out_features, packed.in_features, packed.segments, packed.dtype) == (*shape, 1, dtype)
    out = linear(x, packed)
    assert out.dtype == dtype
    assert_rounded_once(out, exact)
    with_bias = linear(x, packed, bias, torch.float32)
    assert with_bias.dtype == torch.float32
    assert_rounded_once(with_bias, exact + bias.double())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_eight_segments_are_rounded_and_added_in_a_tree(shape, dtype):
    x, weight, bias = tensors(17, shape, dtype)
    width = shape[1] // 8
    s = [
        functional.linear(x[:, i : i + width].double(), weight[:, i : i + width].double()).float()
        for i in range(0, shape[1], width)
    ]
    tree = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))
    packed = pack(weight, segments=8)
    assert torch.equal(linear(x, packed, partial=True), tree)
    assert torch.equal(linear(x, packed), tree.to(dtype))
    assert torch.equal(linear(x, packed, bias), (tree + bias.float()).to(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_ranks", [2, 4, 8])
def test_partial_sums_of_ranks_make_the_whole(num_ranks, dtype):
    x, weight, _ = tensors(33, (256, 704), dtype)
    whole = linear(x, pack(weight, segments=8), out_dtype=torch.float32)
    width = 704 // num_ranks
    parts = [
        linear(own_x.contiguous(), pack(own_weight.contiguous(), segments=8 // num_ranks), partial=True)
        for own_x, own_weight in zip(x.split(width, dim=1), weight.split(width, dim=1), strict=True)
    ]
    while len(parts) > 1:
        parts = [left + right for left, right in zip(parts[0::2], parts[1::2], strict=True)]
    assert torch.equal(parts[0], whole)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("segments", [1, 8])
@pytest.mark.parametrize("num_tokens", TOKEN_COUNTS)
def test_a_row_has_the_same_bits_in_any_batch(num_tokens, segments, dtype):
    x, weight, bias = tensors(num_tokens, (256, 704), dtype)
    packed = pack(weight, segments)
    batch = linear(x, packed, bias, torch.float32)
    alone = torch.cat([linear(row[None], packed, bias, torch.float32) for row in x])
    assert torch.equal(batch, alone)


def test_no_rows():
    x, weight, bias = tensors(0, (65, 80), torch.bfloat16)
    assert linear(x, pack(weight), bias).shape == (0, 65)
    assert linear(x, pack(weight, 8), bias).shape == (0, 65)


def test_errors_name_the_shapes():
    x, weight, bias = tensors(3, (65, 80), torch.float32)
    with pytest.raises(ValueError, match=r"pack: weight \[65, 80\]: 32 segments do not divide K = 80"):
        pack(weight, segments=32)
    with pytest.raises(ValueError, match="pack: 3 segments is no power of two"):
        pack(weight, segments=3)
    with pytest.raises(ValueError, match=r"pack: weight has shape \[65\], expected \[N, K\]"):
        pack(bias)
    with pytest.raises(ValueError, match=r"pack: weight \[80, 65\] is not contiguous"):
        pack(weight.t())
    with pytest.raises(ValueError, match=r"linear: x has shape \[3, 79\], expected \[3, 80\]"):
        linear(x[:, :79].contiguous(), pack(weight))
    with pytest.raises(ValueError, match=r"linear: bias has shape \[64\], expected \[65\]"):
        linear(x, pack(weight), bias[:64])
    with pytest.raises(ValueError, match=r"linear: x \[3, 80\] has dtype torch.float64"):
        linear(x.double(), pack(weight))
    with pytest.raises(ValueError, match="partial sum is float32 and has no bias"):
        linear(x, pack(weight, 2), bias, partial=True)
    with pytest.raises(ValueError, match="partial sum is float32 and has no bias"):
        linear(x, pack(weight, 2), out_dtype=torch.bfloat16, partial=True)
