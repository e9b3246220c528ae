"""`rope` and `kv_write` in one op: it gives the bits that they give apart."""

import pytest
import torch

from penstock.kernels.kv_write import kv_write
from penstock.kernels.paged_attention import allocate_cache
from penstock.kernels.rope import rope
from penstock.kernels.rope_kv_write import rope_kv_write
from tests.kernels.accuracy import DTYPES
from tests.kernels.rotation import angles
from tests.kernels.test_kv_dtypes import pairs


def empty_caches(head_dim, dtype):
    caches = [allocate_cache(9, block_size=16, num_kv_heads=3, head_dim=head_dim, dtype=dtype, device="cpu")
              for _ in range(2)]
    for cache in caches:
        cache.data.fill_(0xFF)
    return caches


def heads_of(num_tokens, head_dim, dtype):
    """q [T, 5, D], k and v [T, 3, D], of all sizes, as parts of one matrix; and where the tokens are in the text."""
    generator = torch.Generator().manual_seed(num_tokens)
    sizes = torch.logspace(-3, 3, num_tokens)[:, None, None]
    qkv = (torch.randn(num_tokens, 11, head_dim, generator=generator) * sizes).to(dtype)
    return *qkv.split([5, 3, 3], dim=1), torch.randint(0, 300, (num_tokens,), generator=generator)


def check_as_apart(num_tokens, head_dim, rotated, dtype, cache_dtype, is_interleaved, bad=None):
    q, k, v, positions = heads_of(num_tokens, head_dim, dtype)
    if bad is not None:
        k[0, 0, 1], k[1, 1, head_dim - 1], v[2, 2, 3] = bad, bad, bad
    table, places = angles(300, rotated), torch.randperm(9 * 16)[:num_tokens]
    together, apart = empty_caches(head_dim, cache_dtype)
    turned = rope_kv_write(q, k, v, *table, positions, is_interleaved, together, places)
    q, k = rope(q, k, *table, positions, is_interleaved)
    kv_write(k, v, apart, places)
    assert turned.is_contiguous()
    assert torch.equal(turned, q)
    assert torch.equal(together.data, apart.data)


@pytest.mark.parametrize("cache_dtype", DTYPES)
@pytest.mark.parametrize("is_interleaved", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_tokens", "head_dim", "rotated"), [(1, 32, 32), (17, 48, 20), (5, 80, 80)])
def test_it_has_the_bits_of_the_ops_apart(
    kernel_set, num_tokens, head_dim, rotated, dtype, is_interleaved, cache_dtype
):
    check_as_apart(num_tokens, head_dim, rotated, dtype, cache_dtype, is_interleaved)


@pytest.mark.parametrize(("kernel_set", "cache_dtype"), list(pairs()), indirect=["kernel_set"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rotated", [32, 12])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, None])
def test_a_scale_is_of_the_whole_rotated_head(kernel_set, cache_dtype, dtype, rotated, bad):
    """Whichever of its parts has the largest number, or one that is not finite."""
    check_as_apart(9, 32, rotated, dtype, cache_dtype, is_interleaved=False, bad=bad)


def test_no_tokens(kernel_set):
    q, k, v, positions = heads_of(0, 32, torch.bfloat16)
    cache, untouched = empty_caches(32, torch.bfloat16)
    assert rope_kv_write(q, k, v, *angles(9, 32), positions, False, cache, positions).shape == (0, 5, 32)
    assert torch.equal(cache.data, untouched.data)


@pytest.mark.parametrize("kernel_set", ["reference"], indirect=True)
def test_errors_name_the_shapes(kernel_set):
    q, k, v, positions = heads_of(4, 32, torch.float32)
    cache, _ = empty_caches(32, torch.float32)
    rest = positions, False, cache
    with pytest.raises(ValueError, match=r"rope_kv_write: q has shape \[4, 5, 16\], expected \[4, 5, 32\]"):
        rope_kv_write(q[..., :16], k, v, *angles(300, 32), *rest, positions)
    with pytest.raises(ValueError, match=r"rope_kv_write: v has shape \[4, 2, 32\], expected \[4, 3, 32\]"):
        rope_kv_write(q, k, v[:, :2], *angles(300, 32), *rest, positions)
    with pytest.raises(ValueError, match=r"rope_kv_write: cos \[300, 17\] rotates 34 dimensions, a head has 32"):
        rope_kv_write(q, k, v, *angles(300, 34), *rest, positions)
    with pytest.raises(ValueError, match=r"rope_kv_write: slot_mapping has shape \[3\], expected \[4\]"):
        rope_kv_write(q, k, v, *angles(300, 32), *rest, positions[:3])
