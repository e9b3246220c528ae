import pytest
import torch

from kernels.kv_write import kv_write
from kernels.paged_attention import allocate_cache, block_bytes
from kernels.paged_attention.reference import cache_blocks
from tests.kernels.accuracy import DTYPES, TOKEN_COUNTS
from tests.kernels.paging import scene


def empty_cache(dtype, head_dim=48, block_size=16):
    cache = allocate_cache(9, block_size=block_size, num_kv_heads=3, head_dim=head_dim, dtype=dtype, device="cpu")
    cache.data.view(dtype).fill_(torch.nan)
    return cache


@pytest.mark.parametrize("cache_dtype", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block_size", [1, 5, 16])
@pytest.mark.parametrize("num_tokens", TOKEN_COUNTS)
def test_each_token_lies_in_its_slot_and_nothing_else_changes(num_tokens, block_size, dtype, cache_dtype):
    generator = torch.Generator().manual_seed(num_tokens)
    cache = empty_cache(cache_dtype, block_size=block_size)
    slots = torch.randperm(9 * block_size, generator=generator)[:num_tokens]
    k, v = torch.randn(2, len(slots), 3, 48, generator=generator).to(dtype)
    kv_write(k, v, cache, slots)
    blocks = cache_blocks(cache)
    for slot, own_k, own_v in zip(slots.tolist(), k, v, strict=True):
        place = blocks[slot // block_size, :, :, slot % block_size]
        assert torch.equal(place[0], own_k.to(cache_dtype))
        assert torch.equal(place[1], own_v.to(cache_dtype))
        place.fill_(torch.nan)
    assert blocks.isnan().all()


def test_bytes_of_a_block():
    for dtype in DTYPES:
        cache = empty_cache(dtype)
        size = block_bytes(block_size=16, num_kv_heads=3, head_dim=48, dtype=dtype)
        assert cache.data.shape == (9, size)
        assert cache.data.dtype == torch.uint8
        assert size == 2 * 16 * 3 * 48 * dtype.itemsize
    with pytest.raises(ValueError, match=r"block_bytes: dtype torch\.int8 is none of torch\.float32"):
        block_bytes(block_size=16, num_kv_heads=3, head_dim=48, dtype=torch.int8)


def test_a_block_moves_by_copying_its_row():
    made = scene([50])
    before = made.attend([(0, 0, 50)], scale=0.2)[0]
    source, target = int(made.tables[0, 1]), (set(range(7)) - set(made.tables[0].tolist())).pop()
    made.cache.data[target] = made.cache.data[source]
    made.cache.data[source] = 255
    made.tables[0, 1] = target
    assert torch.equal(made.attend([(0, 0, 50)], scale=0.2)[0], before)


def test_errors_name_the_shapes():
    cache = empty_cache(torch.float32)
    k, slots = torch.ones(4, 3, 48), torch.arange(4)
    with pytest.raises(ValueError, match=r"kv_write: k has shape \[4, 3, 32\], expected \[4, 3, 48\]"):
        kv_write(torch.ones(4, 3, 32), k, cache, slots)
    with pytest.raises(ValueError, match=r"kv_write: v has shape \[3, 3, 48\], expected \[4, 3, 48\]"):
        kv_write(k, k[:3], cache, slots)
    with pytest.raises(ValueError, match=r"kv_write: v \[4, 3, 48\] has dtype torch.float16, expected torch.float32"):
        kv_write(k, k.half(), cache, slots)
    with pytest.raises(ValueError, match=r"kv_write: slots \[4\] has dtype torch.int32, expected torch.int64"):
        kv_write(k, k, cache, slots.int())
