"""The halves of a block of a tiny model op by op, which tests compare with their fused forms."""

import torch

from penstock.shard.communication.distributed import Group
from penstock.shard.layers import decoder
from penstock.shard.layers.block import AttentionHalf, FeedForwardHalf
from penstock.shard.layers.decoder import Decoder
from tests.kernels.compiled import poison

WIDTH = 72
SHAPE = {"heads": 6, "kv_heads": 2, "head_dim": 24, "hidden": WIDTH, "intermediate": 104, "layers": 1, "vocab": 16}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 40}
MIXTURE = {"family": "qwen3_moe", "norm_topk_prob": True, **EXPERTS}
SHARED = {"family": "qwen2_moe", "shared_expert_intermediate_size": 104, **EXPERTS}


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


def load(monkeypatch, path, dtype=torch.float32, group=None) -> tuple[AttentionHalf, FeedForwardHalf]:
    """The halves of a model of one block, op by op."""
    with monkeypatch.context() as patch:
        patch.setattr(decoder, "fuse", lambda block: block)
        block, = Decoder.load(path, dtype, group or Group())._blocks
    return block.attention, block.feed_forward


def random(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype) / shape[-1] ** 0.5


def compare_feed_forward(monkeypatch, layer, fast, dtype, group, num_tokens) -> None:
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


def set_all(patch, target, values):
    for name, value in values.items():
        patch.setattr(target, name, value)
