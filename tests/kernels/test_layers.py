"""Half a block in one call: the bits of its ops, one after the other."""

import pytest
import torch

from penstock.kernels.attention_layer import AttentionWeights, Tokens, attention_layer
from penstock.kernels.attention_layer import reference as attention_reference
from penstock.kernels.linear import pack
from penstock.kernels.mlp_layer import MlpWeights, mlp_layer
from penstock.kernels.mlp_layer import reference as mlp_reference
from penstock.kernels.paged_attention import allocate_cache
from tests.kernels.accuracy import DTYPES
from tests.kernels.compiled import poison

HEADS, KV_HEADS, HEAD_DIM, WIDTH, INNER = 6, 2, 24, 80, 100
STARTS, COUNTS = [0, 37, 5], [33, 1, 2]
BLOCK_SIZE, NUM_BLOCKS = 16, 12


def random(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype) / shape[-1] ** 0.5


def attention_weights(dtype, has_bias=False, has_head_norms=False, window=0):
    q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    return AttentionWeights(
        norm=1 + random(WIDTH, dtype=dtype), eps=1e-5, qkv=pack(random(q + 2 * kv, WIDTH, dtype=dtype)),
        qkv_bias=random(q + 2 * kv, dtype=dtype) if has_bias else None,
        head_norms=(1 + random(HEAD_DIM, dtype=dtype), 1 + random(HEAD_DIM, seed=1)) if has_head_norms else None,
        cos=random(64, 8), sin=random(64, 8, seed=1), output=pack(random(WIDTH, q, dtype=dtype), 8),
        output_bias=random(WIDTH) if has_bias else None, num_heads=HEADS, num_kv_heads=KV_HEADS, head_dim=HEAD_DIM,
        scale=0.2, window=window)


def tokens():
    tables = torch.arange(NUM_BLOCKS, dtype=torch.int32).view(3, 4).flip(1).contiguous()
    positions = torch.cat([torch.arange(start, start + count) for start, count in zip(STARTS, COUNTS, strict=True)])
    row = torch.arange(3).repeat_interleave(torch.tensor(COUNTS))
    slots = tables[row, positions // BLOCK_SIZE].long() * BLOCK_SIZE + positions % BLOCK_SIZE
    return Tokens(positions, slots, tables, torch.tensor(STARTS, dtype=torch.int32),
                  torch.tensor(COUNTS, dtype=torch.int32))


def cache(dtype):
    made = allocate_cache(NUM_BLOCKS, block_size=BLOCK_SIZE, num_kv_heads=KV_HEADS, head_dim=HEAD_DIM, dtype=dtype,
                          device="cpu")
    made.data.zero_()
    return made


@pytest.mark.parametrize("form", [
    {}, {"has_bias": True}, {"has_head_norms": True}, {"window": 9}, {"has_bias": True, "has_head_norms": True}])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("has_delta", [False, True])
def test_attention_is_its_ops(compiled_kernels, bit_contract, monkeypatch, form, dtype, partial, has_delta):
    poison(monkeypatch)
    weights, step = attention_weights(dtype, **form), tokens()
    x, delta = random(36, WIDTH, dtype=dtype), random(36, WIDTH, dtype=dtype, seed=3) if has_delta else None
    caches = cache(dtype), cache(dtype)
    total, out = attention_layer(weights, x, delta, step, caches[0], partial)
    expected = attention_reference.attention_layer(weights, x, delta, step, caches[1], partial)
    assert out.dtype == (torch.float32 if partial else dtype)
    assert torch.equal(total, expected[0])
    assert torch.equal(out, expected[1])
    assert torch.equal(caches[0].data, caches[1].data)
    assert out.isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_over_a_cache_of_8_bits_is_its_ops(cpu_kernels, monkeypatch, dtype):
    poison(monkeypatch)
    weights, step, x = attention_weights(dtype, has_head_norms=True), tokens(), random(36, WIDTH, dtype=dtype)
    caches = cache(torch.int8), cache(torch.int8)
    total, out = attention_layer(weights, x, None, step, caches[0])
    expected = attention_reference.attention_layer(weights, x, None, step, caches[1], False)
    assert torch.equal(total, expected[0])
    assert torch.equal(out, expected[1])
    assert torch.equal(caches[0].data, caches[1].data)
    assert out.isfinite().all()


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("num_tokens", [0, 1, 7])
def test_mlp_is_its_ops(cpu_kernels, monkeypatch, has_bias, dtype, partial, num_tokens):
    poison(monkeypatch)
    weights = MlpWeights(
        norm=1 + random(WIDTH), eps=1e-5, gate_up=pack(random(2 * INNER, WIDTH, dtype=dtype)),
        gate_up_bias=random(2 * INNER, dtype=dtype) if has_bias else None,
        down=pack(random(WIDTH, INNER, dtype=dtype), 4), down_bias=random(WIDTH) if has_bias else None)
    x = random(num_tokens, WIDTH, dtype=dtype)
    for delta in (None, random(num_tokens, WIDTH, dtype=dtype, seed=1)):
        total, out = mlp_layer(weights, x, delta, partial)
        expected = mlp_reference.mlp_layer(weights, x, delta, partial)
        assert out.dtype == (torch.float32 if partial else dtype)
        assert torch.equal(total, expected[0])
        assert torch.equal(out, expected[1])
        assert out.isfinite().all()


def test_errors(kernel_set):
    weights, step = attention_weights(torch.float32), tokens()
    with pytest.raises(ValueError, match=r"attention_layer: x has shape \[35, 80\], expected \[36, 80\]"):
        attention_layer(weights, random(35, WIDTH), None, step, cache(torch.float32))
    with pytest.raises(ValueError, match=r"attention_layer: delta \[36, 80\] has dtype torch.float16"):
        attention_layer(weights, random(36, WIDTH), random(36, WIDTH).half(), step, cache(torch.float32))
    with pytest.raises(ValueError, match=r"Tokens: counts has shape \[2\], expected \[3\]"):
        Tokens(step.positions, step.slots, step.tables, step.starts, step.counts[:2])
    with pytest.raises(ValueError, match=r"MlpWeights: down is \[80, 100\], gate_up \[160, 80\]"):
        MlpWeights(random(WIDTH), 1e-5, pack(random(160, WIDTH)), None, pack(random(WIDTH, INNER)), None)


def test_tokens_outside_the_cache_are_refused(cpu_kernels):
    weights, step = attention_weights(torch.float32), tokens()
    x = random(36, WIDTH)
    slots = step.slots.clone()
    slots[3] = NUM_BLOCKS * BLOCK_SIZE
    with pytest.raises(ValueError, match=r"kv_write: slots .* are not all in 12 blocks of 16"):
        attention_layer(weights, x, None, Tokens(step.positions, slots, step.tables, step.starts, step.counts),
                        cache(torch.float32))
    with pytest.raises(ValueError, match=r"paged_attention: .* has 36 rows, counts are .* with sum 37"):
        attention_layer(weights, x, None, Tokens(step.positions, step.slots, step.tables, step.starts, step.counts
                                                 + torch.tensor([0, 0, 1], dtype=torch.int32)), cache(torch.float32))
