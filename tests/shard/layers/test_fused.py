"""Fused layers: the bits of the layers written op by op."""

from pathlib import Path

import pytest
import torch

from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.fused.blocks import Blocks
from penstock.kernels.paged_attention import allocate_cache
from penstock.shard.communication.distributed import Group
from penstock.shard.layers import fused
from penstock.shard.layers.attention import Attention
from penstock.shard.layers.fused import FusedAttention, FusedMlp, fuse, fuse_blocks
from penstock.shard.layers.mlp import Mlp
from penstock.shard.models import decoder
from penstock.shard.models.decoder import Decoder
from tests import kernel_sets
from tests.kernels.accuracy import DTYPES
from tests.kernels.compiled import poison
from tests.tiny_models import SLIDING_LAYERS, make_tiny

WIDTH = 72
STARTS, COUNTS = [0, 37, 5], [33, 1, 2]
NUM_TOKENS = sum(COUNTS)
BLOCK_SIZE, NUM_BLOCKS = 16, 12
SHAPE = {"heads": 6, "kv_heads": 2, "head_dim": 24, "hidden": WIDTH, "intermediate": 104, "layers": 1, "vocab": 16}
MODELS = {
    "plain": {"family": "llama"},
    "biases": {"family": "llama", "has_bias": True},
    "head norms": {"family": "qwen3", "use_sliding_window": False},
    "window": {"family": "mistral", "sliding_window": 9},
    "head norms, biases, window": {"family": "qwen3", "max_window_layers": 0, "attention_bias": True, **SLIDING_LAYERS},
}


class OneOfTwo(Group):
    """The second rank of a group, the sums of which are its own share; it notes these shares."""

    def __init__(self) -> None:
        super().__init__()
        self.rank, self.world_size = 1, 2
        self.shares: list[torch.Tensor] = []

    def sum(self, partial):
        assert partial.dtype == torch.float32
        self.shares.append(partial.clone())
        return partial


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {name: make_tiny(folder / name, **SHAPE, **keys) for name, keys in MODELS.items()}


@pytest.fixture(params=kernel_sets.CPU_SETS, autouse=True)
def cpu_kernels(request, monkeypatch):
    """Every instruction path of the processor's compiled kernels."""
    kernel_sets.use(monkeypatch, request.param)


def load(monkeypatch, path, dtype=torch.float32, group=None) -> tuple[Attention, Mlp]:
    """The layers of a model of one block, op by op."""
    with monkeypatch.context() as patch:
        patch.setattr(decoder, "fuse", lambda layer: None)
        block, = Decoder.load(path, dtype, group or Group())._blocks
    return block.attention, block.feed_forward


def random(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype) / shape[-1] ** 0.5


def make_metadata(**changes) -> AttentionMetadata:
    tables = torch.arange(NUM_BLOCKS, dtype=torch.int32).view(3, 4).flip(1).contiguous()
    positions = torch.cat([torch.arange(start, start + count) for start, count in zip(STARTS, COUNTS, strict=True)])
    row = torch.arange(3).repeat_interleave(torch.tensor(COUNTS))
    slot_mapping = tables[row, positions // BLOCK_SIZE].long() * BLOCK_SIZE + positions % BLOCK_SIZE
    made = {"positions": positions, "slot_mapping": slot_mapping, "tables": tables,
            "starts": torch.tensor(STARTS, dtype=torch.int32), "counts": torch.tensor(COUNTS, dtype=torch.int32)}
    return AttentionMetadata(**made | changes)


def make_cache(layer, dtype):
    made = allocate_cache(NUM_BLOCKS, block_size=BLOCK_SIZE, num_kv_heads=layer.num_kv_heads, head_dim=layer.head_dim,
                          dtype=dtype, device="cpu")
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
    layer.rotary.cos, layer.rotary.sin = (table[:, :8].contiguous() for table in (layer.rotary.cos, layer.rotary.sin))
    compare_attention(monkeypatch, layer, dtype, dtype)


def compare_attention(monkeypatch, layer, dtype, cache_dtype, group=None) -> None:
    fast = fuse(layer)
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
    fast = fuse(layer)
    assert type(fast) is FusedMlp
    poison(monkeypatch)
    x = random(num_tokens, WIDTH, dtype=dtype)
    for delta in (None, random(num_tokens, WIDTH, dtype=dtype, seed=1)):
        total, out = fast(x, delta)
        expected = layer(x, delta)
        assert out.dtype == dtype
        assert torch.equal(total, expected[0])
        assert torch.equal(out, expected[1])
        assert out.isfinite().all()
        if isinstance(group, OneOfTwo):
            assert torch.equal(*group.shares[-2:])


@pytest.mark.parametrize("dtype", DTYPES)
def test_blocks_have_the_bits_of_their_halves(models, monkeypatch, dtype):
    """Three blocks of two kinds, the first of which is given nothing to add."""
    layers = [load(monkeypatch, models[model], dtype) for model in ("plain", "biases", "plain")]
    halves = [tuple(map(fuse, pair)) for pair in layers]
    caches = [[make_cache(attention, dtype) for attention, _ in layers] for _ in range(2)]
    metadata, x, delta = make_metadata(), random(NUM_TOKENS, WIDTH, dtype=dtype), None
    total, out = fuse_blocks(halves)(x.clone(), metadata, caches[0])
    for (attention, mlp), cache in zip(halves, caches[1], strict=True):
        x, delta = mlp(*attention(x, delta, metadata, cache))
    assert torch.equal(total, x)
    assert torch.equal(out, delta)
    assert all(torch.equal(one.data, other.data) for one, other in zip(*caches, strict=True))


def test_which_blocks_become_one(models, monkeypatch):
    """Those all halves of which are fused, on one rank: else there are sums to join between them."""
    layers = load(monkeypatch, models["plain"])
    attention, mlp = map(fuse, layers)
    assert fuse_blocks([(attention, mlp)])
    assert fuse_blocks([(attention, mlp), (layers[0], mlp)]) is None
    assert fuse_blocks([(attention, mlp), (attention, layers[1])]) is None
    assert fuse_blocks([tuple(map(fuse, load(monkeypatch, models["plain"], group=OneOfTwo())))]) is None


def test_a_decoder_runs_fused_layers(models):
    decoder = Decoder.load(models["plain"], None, Group())
    block, = decoder._blocks
    assert (type(block.attention), type(block.feed_forward)) == (FusedAttention, FusedMlp)
    assert isinstance(decoder._whole, Blocks)


def test_what_is_not_fused(models, monkeypatch):
    """Layers of other classes, weights that the compiled kernels do not read, and all layers of other kernel sets."""

    class Other(Mlp):
        pass

    class OtherWeight:
        compiled = None

    layers = load(monkeypatch, models["plain"])
    other = object.__new__(Other)
    other.__dict__ = vars(layers[1])
    assert fuse(other) is None
    with monkeypatch.context() as patch:
        patch.setattr(layers[0].output, "weight", OtherWeight())
        patch.setattr(layers[1].gate_up, "weight", OtherWeight())
        assert [fuse(layer) for layer in layers] == [None, None]
    assert None not in [fuse(layer) for layer in layers]
    for name in ("reference", "gpu"):
        with monkeypatch.context() as patch:
            patch.setattr(fused.fused.dispatch, "kernel_set", lambda name=name: name)
            assert [fuse(layer) for layer in layers] == [None, None]
