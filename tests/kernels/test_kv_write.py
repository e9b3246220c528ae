import pytest
import torch

from penstock.kernels import native
from penstock.kernels.kv_write import kv_write
from penstock.kernels.paged_attention import allocate_cache, block_bytes
from penstock.kernels.paged_attention.reference import cache_blocks
from tests.kernels.accuracy import DTYPES
from tests.kernels.paging import scene


def empty_cache(dtype, head_dim=48, block_size=16):
    cache = allocate_cache(9, block_size=block_size, num_kv_heads=3, head_dim=head_dim, dtype=dtype, device="cpu")
    cache.data.view(dtype).fill_(torch.nan)
    return cache


def stored(kernel_set, cache):
    """The K and V in a cache, [num_blocks, 2, KV, block_size, D]: a copy in torch of what csrc/kv_layout.h says."""
    if kernel_set in ("reference", "gpu"):
        return cache_blocks(cache).clone()
    heads, dim = cache.num_kv_heads, -(-cache.head_dim // 16) * 16
    data = cache.data.view(cache.dtype)
    if cache.block_size % 16:
        blocks = data.view(cache.num_blocks, cache.block_size, heads, 2, dim).permute(0, 3, 2, 1, 4)
    else:
        cells = data.view(-1, heads, 2, 16 * dim)
        k, v = cells[:, :, 0], cells[:, :, 1]
        if cache.dtype == torch.bfloat16:
            k = k.view(-1, heads, dim // 2, 16, 2).permute(0, 1, 3, 2, 4).flatten(3)
            v = v.view(-1, heads, 8, dim, 2).permute(0, 1, 2, 4, 3).flatten(2, 3)
        else:
            k, v = k.view(-1, heads, dim, 16).transpose(2, 3), v.view(-1, heads, 16, dim)
        blocks = torch.stack([k, v], dim=1).view(cache.num_blocks, -1, 2, heads, 16, dim).permute(0, 2, 3, 1, 4, 5)
        blocks = blocks.flatten(3, 4)
    return blocks[..., : cache.head_dim].clone()


@pytest.mark.parametrize("cache_dtype", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block_size", [1, 5, 16, 32])
@pytest.mark.parametrize(("num_tokens", "head_dim"), [(1, 48), (17, 23), (100, 48)])
def test_each_token_lies_in_its_place_and_nothing_else_changes(
    kernel_set, num_tokens, head_dim, block_size, dtype, cache_dtype
):
    generator = torch.Generator().manual_seed(num_tokens)
    cache = empty_cache(cache_dtype, head_dim=head_dim, block_size=block_size)
    slot_mapping = torch.randperm(9 * block_size, generator=generator)[:num_tokens]
    k, v = torch.randn(2, len(slot_mapping), 3, head_dim, generator=generator).to(dtype)
    kv_write(k, v, cache, slot_mapping)
    blocks = stored(kernel_set, cache).permute(0, 3, 1, 2, 4).flatten(0, 1)
    assert torch.equal(blocks[slot_mapping], torch.stack([k, v], dim=1).to(cache_dtype))
    blocks[slot_mapping] = torch.nan
    assert blocks.isnan().all()


@pytest.mark.slow_in_interpreter
def test_bits_stay_where_the_dtype_stays(kernel_set):
    """Denormals and NaNs too."""
    cache = empty_cache(torch.bfloat16, head_dim=16)
    bits = torch.arange(144 * 2 * 3 * 16) * 4 + 3
    k, v = bits.to(torch.int16).view(torch.bfloat16).view(144, 2, 3, 16).unbind(1)
    kv_write(k, v, cache, torch.arange(144))
    blocks = stored(kernel_set, cache).permute(0, 3, 1, 2, 4).flatten(0, 1)
    assert torch.equal(blocks.contiguous().view(torch.int16), torch.stack([k, v], dim=1).contiguous().view(torch.int16))


def test_rows_may_be_columns_of_a_matrix(kernel_set):
    qkv = torch.randn(20, (4 + 3 + 3) * 48)
    k, v = (part.unflatten(1, (3, 48)) for part in qkv.split([4 * 48, 3 * 48, 3 * 48], dim=1)[1:])
    views, copies = empty_cache(torch.bfloat16), empty_cache(torch.bfloat16)
    kv_write(k, v, views, torch.arange(7, 27))
    kv_write(k.contiguous(), v.contiguous(), copies, torch.arange(7, 27))
    assert torch.equal(views.data, copies.data)


def test_threads_change_nothing(cpu_kernels):
    k, v = torch.randn(2, 2000, 3, 48)
    caches = []
    try:
        for threads in (1, 2, 3):
            native.library.set_threads(threads, None)
            cache = allocate_cache(125, block_size=16, num_kv_heads=3, head_dim=48, dtype=torch.bfloat16, device="cpu")
            kv_write(k, v, cache, torch.arange(2000))
            caches.append(cache.data)
    finally:
        native.library.set_threads(1, None)
    assert torch.equal(caches[0], caches[1])
    assert torch.equal(caches[0], caches[2])


def test_no_tokens(kernel_set):
    cache = empty_cache(torch.float32)
    kv_write(torch.empty(0, 3, 48), torch.empty(0, 3, 48), cache, torch.empty(0, dtype=torch.int64))
    assert cache.data.view(torch.float32).isnan().all()


@pytest.mark.parametrize("entry", [-1, 144, 2**40])
def test_a_slot_mapping_outside_the_cache_is_an_error(cpu_kernels, entry):
    cache = empty_cache(torch.float32)
    with pytest.raises(ValueError, match=rf"kv_write: slot_mapping \[3, {entry}\] does not lie within 9 blocks of 16"):
        kv_write(torch.ones(2, 3, 48), torch.ones(2, 3, 48), cache, torch.tensor([3, entry]))
    assert cache.data.view(torch.float32).isnan().all()


def test_bytes_of_a_block(kernel_set):
    for dtype in DTYPES:
        cache = empty_cache(dtype)
        size = block_bytes(block_size=16, num_kv_heads=3, head_dim=48, dtype=dtype)
        assert cache.data.shape == (9, size)
        assert cache.data.dtype == torch.uint8
        assert size == 2 * 16 * 3 * 48 * dtype.itemsize
    with pytest.raises(ValueError, match=r"block_bytes: dtype torch\.int16 is none of torch\.float32"):
        block_bytes(block_size=16, num_kv_heads=3, head_dim=48, dtype=torch.int16)


@pytest.mark.slow_in_interpreter
def test_a_block_moves_by_copying_its_row(kernel_set):
    made = scene([50])
    before = made.attend([(0, 0, 50)], scale=0.2)[0]
    source, target = int(made.tables[0, 1]), (set(range(7)) - set(made.tables[0].tolist())).pop()
    made.cache.data[target] = made.cache.data[source]
    made.cache.data[source] = 255
    made.tables[0, 1] = target
    assert torch.equal(made.attend([(0, 0, 50)], scale=0.2)[0], before)


def test_errors_name_the_shapes(kernel_set):
    cache = empty_cache(torch.float32)
    k, slot_mapping = torch.ones(4, 3, 48), torch.arange(4)
    with pytest.raises(ValueError, match=r"kv_write: k has shape \[4, 3, 32\], expected \[4, 3, 48\]"):
        kv_write(torch.ones(4, 3, 32), k, cache, slot_mapping)
    with pytest.raises(ValueError, match=r"kv_write: v has shape \[3, 3, 48\], expected \[4, 3, 48\]"):
        kv_write(k, k[:3], cache, slot_mapping)
    with pytest.raises(ValueError, match=r"kv_write: v \[4, 3, 48\] has dtype torch.float16, expected torch.float32"):
        kv_write(k, k.half(), cache, slot_mapping)
    with pytest.raises(ValueError, match=r"kv_write: slot_mapping \[4\] has dtype torch.int32, expected torch.int64"):
        kv_write(k, k, cache, slot_mapping.int())
