"""Fused layers: the bits of the layers written op by op."""

from pathlib import Path

import pytest
import torch

from penstock.kernels.activation import Activation
from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.fused.blocks import Blocks
from penstock.kernels.paged_attention import allocate_cache
from penstock.shard.communication.distributed import Group
from penstock.shard.layers import fused
from penstock.shard.layers.block import FeedForwardHalf, ParallelBlock, SerialBlock
from penstock.shard.layers.decoder import Decoder
from penstock.shard.layers.fused import (
    FusedAttention,
    FusedMlp,
    fuse,
    fuse_attention,
    fuse_blocks,
    fuse_mlp,
)
from penstock.shard.layers.mlp import Mlp
from penstock.shard.layers.norm import LayerNorm
from tests import kernel_sets
from tests.kernels.accuracy import DTYPES
from tests.kernels.compiled import poison
from tests.shard.layers.halves import (
    MIXTURE,
    SHAPE,
    WIDTH,
    OneOfTwo,
    compare_feed_forward,
    load,
    random,
    set_all,
)
from tests.tiny_models import SLIDING_LAYERS, make_tiny

STARTS, COUNTS = [0, 37, 5], [33, 1, 2]
NUM_TOKENS = sum(COUNTS)
BLOCK_SIZE, NUM_BLOCKS = 16, 12
MODELS = {
    "plain": {"family": "llama"},
    "biases": {"family": "llama", "has_bias": True},
    "head norms": {"family": "qwen3", "use_sliding_window": False},
    "window": {"family": "mistral", "sliding_window": 9},
    "mixture": MIXTURE,
    "head norms, biases, window": {"family": "qwen3", "max_window_layers": 0, "attention_bias": True, **SLIDING_LAYERS},
}


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {name: make_tiny(folder / name, **SHAPE, **keys) for name, keys in MODELS.items()}


@pytest.fixture(params=kernel_sets.CPU_SETS, autouse=True)
def cpu_kernels(request, monkeypatch):
    """Every instruction path of the processor's compiled kernels."""
    kernel_sets.use(monkeypatch, request.param)


def make_metadata(**changes) -> AttentionMetadata:
    tables = torch.arange(NUM_BLOCKS, dtype=torch.int32).view(3, 4).flip(1).contiguous()
    positions = torch.cat([torch.arange(start, start + count) for start, count in zip(STARTS, COUNTS, strict=True)])
    row = torch.arange(3).repeat_interleave(torch.tensor(COUNTS))
    slot_mapping = tables[row, positions // BLOCK_SIZE].long() * BLOCK_SIZE + positions % BLOCK_SIZE
    made = {"positions": positions, "slot_mapping": slot_mapping, "tables": tables,
            "starts": torch.tensor(STARTS, dtype=torch.int32), "counts": torch.tensor(COUNTS, dtype=torch.int32)}
    return AttentionMetadata(**made | changes)


def make_cache(half, dtype):
    made = allocate_cache(NUM_BLOCKS, block_size=BLOCK_SIZE, num_kv_heads=half.layer.num_kv_heads,
                          head_dim=half.layer.head_dim, dtype=dtype, device="cpu")
    made.data.zero_()
    return made


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("group", [Group(), OneOfTwo()], ids=["whole", "partial"])
def test_attention_has_the_bits_of_its_ops(models, monkeypatch, model, dtype, group):
    layer, _ = load(monkeypatch, models[model], dtype, group)
    compare_attention(monkeypatch, layer, dtype, dtype, group)


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_over_a_cache_of_8_bits_has_the_bits_of_its_ops(models, monkeypatch, dtype):
    layer, _ = load(monkeypatch, models["head norms"], dtype)
    compare_attention(monkeypatch, layer, dtype, torch.int8)


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_that_turns_a_part_of_each_head_has_the_bits_of_its_ops(models, monkeypatch, dtype):
    """The first 16 of its 24 dimensions."""
    layer, _ = load(monkeypatch, models["head norms"], dtype)
    rotary = layer.layer.rotary
    rotary.cos, rotary.sin = (table[:, :8].contiguous() for table in (rotary.cos, rotary.sin))
    compare_attention(monkeypatch, layer, dtype, dtype)


def compare_attention(monkeypatch, layer, dtype, cache_dtype, group=None) -> None:
    fast = fuse_attention(layer)
    assert type(fast) is FusedAttention
    poison(monkeypatch)
    metadata, x = make_metadata(), random(NUM_TOKENS, WIDTH, dtype=dtype)
    caches = make_cache(layer, cache_dtype), make_cache(layer, cache_dtype)
    for delta in (None, random(NUM_TOKENS, WIDTH, dtype=dtype, seed=3)):
        total, out = fast(x, delta, metadata, caches[0])
        expected = layer(x, delta, metadata, caches[1])
        assert out.dtype == dtype
        assert torch.equal(total, expected[0])
        assert torch.equal(out, expected[1])
        assert torch.equal(caches[0].data, caches[1].data)
        assert out.isfinite().all()
        if isinstance(group, OneOfTwo):
            assert torch.equal(*group.shares[-2:]), "in float32, before they are rounded"


@pytest.mark.parametrize("model", ["plain", "biases"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("group", [Group(), OneOfTwo()], ids=["whole", "partial"])
@pytest.mark.parametrize("num_tokens", [0, 1, 7])
def test_mlp_has_the_bits_of_its_ops(models, monkeypatch, model, dtype, group, num_tokens):
    _, layer = load(monkeypatch, models[model], dtype, group)
    fast = fuse_mlp(layer)
    assert type(fast) is FusedMlp
    compare_feed_forward(monkeypatch, layer, fast, dtype, group, num_tokens)


@pytest.mark.parametrize("dtype", DTYPES)
def test_blocks_have_the_bits_of_their_halves(models, monkeypatch, dtype):
    """Blocks of three kinds, the first of which is given nothing to add."""
    plain = [SerialBlock(*load(monkeypatch, models[model], dtype)) for model in ("plain", "biases", "mixture", "plain")]
    blocks = [fuse(block) for block in plain]
    caches = [[make_cache(block.attention, dtype) for block in plain] for _ in range(2)]
    metadata, x, delta = make_metadata(), random(NUM_TOKENS, WIDTH, dtype=dtype), None
    total, out = fuse_blocks(blocks)(x.clone(), metadata, caches[0])
    for block, cache in zip(blocks, caches[1], strict=True):
        x, delta = block(x, delta, metadata, cache)
    assert torch.equal(total, x)
    assert torch.equal(out, delta)
    assert all(torch.equal(one.data, other.data) for one, other in zip(*caches, strict=True))


def test_which_blocks_become_one(models, monkeypatch):
    """Those all halves of which are fused, on one rank: else there are sums to join between them."""
    plain = SerialBlock(*load(monkeypatch, models["plain"]))
    fast = fuse(plain)
    assert fuse_blocks([fast])
    assert fuse_blocks([fast, SerialBlock(plain.attention, fast.feed_forward)]) is None
    assert fuse_blocks([fast, SerialBlock(fast.attention, plain.feed_forward)]) is None
    assert fuse_blocks([fast, ParallelBlock(plain.attention, plain.feed_forward, has_two_norms=True)]) is None
    assert fuse_blocks([fuse(SerialBlock(*load(monkeypatch, models["plain"], group=OneOfTwo())))]) is None


def test_a_decoder_runs_fused_layers(models):
    decoder = Decoder.load(models["plain"], None, Group())
    block, = decoder._blocks
    assert (type(block.attention), type(block.feed_forward)) == (FusedAttention, FusedMlp)
    assert isinstance(decoder._whole, Blocks)


ATTENTIONS = [{"is_interleaved": True}, {"rotary": None}, {"softcap": 2.0}, {"clip": 1.0}, {"slopes": torch.ones(6)}]
MLPS = [{"is_gated": False}, {"activation": Activation.GELU}]


def test_what_is_not_fused(models, monkeypatch):
    """Halves unlike Llama's, weights that the compiled kernels do not read, and all halves of other kernel sets."""

    class Other(Mlp):
        pass

    class OtherWeight:
        compiled = None

    attention, mlp = load(monkeypatch, models["head norms"])
    block = SerialBlock(attention, mlp)
    other = object.__new__(Other)
    other.__dict__ = vars(mlp.layer)
    assert fuse_mlp(FeedForwardHalf(mlp.residual, other)) is None
    for values in ({"norm": LayerNorm(torch.ones(1, WIDTH), None, 1e-6)}, {"post_norm": attention.residual.norm},
                   {"multiplier": 0.5}):
        with monkeypatch.context() as patch:
            set_all(patch, attention.residual, values)
            set_all(patch, mlp.residual, values)
            assert (fuse_attention(attention), fuse_mlp(mlp)) == (None, None)
    for values in (*ATTENTIONS, {"output": type("Output", (), {"weight": OtherWeight()})()}):
        with monkeypatch.context() as patch:
            set_all(patch, attention.layer, values)
            assert fuse_attention(attention) is None
    for values in (*MLPS, {"gate_up": type("Output", (), {"weight": OtherWeight()})()}):
        with monkeypatch.context() as patch:
            set_all(patch, mlp.layer, values)
            assert fuse_mlp(mlp) is None
    with monkeypatch.context() as patch:
        patch.setattr(attention.layer.head_norms[0].norm, "eps", 1e-3)
        assert fuse_attention(attention) is None
    assert None not in (fuse_attention(attention), fuse_mlp(mlp))
    for name in ("reference", "gpu"):
        with monkeypatch.context() as patch:
            patch.setattr(fused.fused.dispatch, "kernel_set", lambda name=name: name)
            assert fuse(block) is block
