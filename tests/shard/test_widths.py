"""Widths and heads that the number of shards does not divide: the bits of one shard where they are promised, and else
logits that are as near as another order of sums lets them be."""

from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from penstock.kernels.linear import linear
from penstock.shard.communication.distributed import Group, connect, tree_sum
from penstock.shard.layers.decoder import Decoder
from penstock.shard.layers.heads import OwnHeads
from penstock.shard.models.model_options import AS_STORED, ModelOptions
from penstock.shard.models.reading import read_model_config
from penstock.shard.weights.checkpoint import Checkpoint
from penstock.shard.weights.rank_weights import RankWeights
from tests.family_models import make_family
from tests.shard.spawned_ranks import Results, run_ranks
from tests.tiny_models import make_tiny, prompt_logits, random_ids

IDS = random_ids(40, 160)
DOWN = "model.layers.0.mlp.down_proj"
SAME_BITS: dict[str, tuple[str, dict[str, Any]]] = {
    "gated": ("llama", {"intermediate_size": 100}),
    "gated, biases": ("llama, biases", {"intermediate_size": 90}),
    "stacked": ("phi3, longrope", {"intermediate_size": 101, "num_key_value_heads": 4}),
    "not gated": ("nemotron", {"intermediate_size": 59}),
    "experts": ("qwen2_moe", {"moe_intermediate_size": 36, "shared_expert_intermediate_size": 51}),
    "alternating experts": ("gpt_oss", {"intermediate_size": 34}),
    "stacked experts": ("granitemoeshared", {"intermediate_size": 42, "shared_intermediate_size": 44}),
    "latent": ("deepseek_v3", {"intermediate_size": 97, "moe_intermediate_size": 29}),
}
"""By what is odd, the family's checkpoint, and what is otherwise in its configuration."""
NEAR: dict[str, tuple[str, dict[str, Any]]] = {
    "9 heads on 3": ("llama", {"num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 72}),
    "14 heads on 2": ("qwen2", {"num_attention_heads": 14, "num_key_value_heads": 2, "hidden_size": 112}),
    "15 heads on 5": ("llama, biases", {"num_attention_heads": 15, "num_key_value_heads": 5, "hidden_size": 120}),
    "stacked": ("phi3", {"num_attention_heads": 10, "num_key_value_heads": 5, "hidden_size": 80}),
    "norms of all heads": ("olmo2", {"num_attention_heads": 10, "num_key_value_heads": 5, "hidden_size": 80}),
    "sinks": ("gpt_oss", {"num_attention_heads": 12, "num_key_value_heads": 6}),
    "slopes": ("bloom, 12 heads", {}),
    "latent": ("deepseek_v2", {"num_attention_heads": 10, "num_key_value_heads": 10, "hidden_size": 80}),
    "experts": ("mixtral", {"intermediate_size": 100, "num_attention_heads": 10, "num_key_value_heads": 5,
                            "hidden_size": 80}),
}
SPLITS = {2: [*NEAR], 3: ["9 heads on 3", "15 heads on 5", "sinks", "norms of all heads", "latent", "experts"],
          4: ["14 heads on 2", "15 heads on 5", "norms of all heads", "slopes", "latent"]}


def make_all(folder: Path, models: dict[str, tuple[str, dict[str, Any]]], dtype: torch.dtype) -> None:
    for name, (family, keys) in models.items():
        make_family(folder / name, family, dtype, **keys)


def logits_of(folder: Path, names: list[str], group: Group) -> dict[str, Tensor | None]:
    return {name: prompt_logits(Decoder.load(folder / name, None, group), IDS) for name in names}


def work(rank: int, world_size: int, folder: Path, barrier: Barrier) -> Results:
    group = connect(f"file://{folder}/rendezvous-{world_size}", rank, world_size)
    names = [path.name for path in sorted(folder.iterdir()) if path.is_dir()]
    logits = logits_of(folder, names, group)
    barrier.wait()
    group.close()
    return logits


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_inner_widths_have_the_bits_of_one(tmp_path: Path, world_size: int) -> None:
    models = {name: model for name, model in SAME_BITS.items() if world_size < 8 or "experts" not in name}
    make_all(tmp_path, models, torch.bfloat16)
    alone = logits_of(tmp_path, [*models], Group())
    found = run_ranks(work, world_size, tmp_path)[0]
    assert [name for name in models if not torch.equal(found[name], alone[name])] == []


@pytest.mark.slow
@pytest.mark.parametrize("world_size", SPLITS)
def test_heads_are_near(tmp_path: Path, world_size: int) -> None:
    make_all(tmp_path, {name: NEAR[name] for name in SPLITS[world_size]}, torch.float32)
    alone = logits_of(tmp_path, SPLITS[world_size], Group())
    found = run_ranks(work, world_size, tmp_path)[0]
    for name in SPLITS[world_size]:
        torch.testing.assert_close(found[name], alone[name], rtol=0, atol=1e-4, msg=name)


@pytest.mark.parametrize("quantize", [None, "int8", "int4", "bitsandbytes-nf4"])
@pytest.mark.parametrize(("inner", "dtype"), [(100, torch.bfloat16), (61, torch.float32), (9, torch.float16)])
def test_parts_of_a_sum_make_the_whole(tmp_path: Path, inner: int, dtype: torch.dtype, quantize: str | None) -> None:
    checkpoint = Checkpoint(make_tiny(tmp_path, intermediate=inner, dtype=dtype))
    options = AS_STORED if quantize is None else ModelOptions(quantize)
    format_of = read_model_config(tmp_path, options).format_of

    def sums_of(world_size: int) -> Tensor:
        ranks = [RankWeights(checkpoint, Group(rank, world_size), dtype, format_of=format_of)
                 for rank in range(world_size)]
        return torch.stack([
            linear(x[:, each.own_inner(inner).part].contiguous(),
                   each.row_parallel(DOWN, 64, inner, each.own_inner(inner)), partial=True) for each in ranks])

    x = torch.randn(5, inner, generator=torch.Generator().manual_seed(1)).to(dtype)
    whole = sums_of(1)[0]
    for world_size in (2, 4, 8) if inner > 9 else (2,):  # on 4 the last would have none
        assert torch.equal(tree_sum(sums_of(world_size)), whole), world_size
    if quantize is None:
        expected = x.double() @ checkpoint_weight(checkpoint, inner).double().T
        torch.testing.assert_close(whole.double(), expected, rtol=0, atol=1e-4)


def checkpoint_weight(checkpoint: Checkpoint, inner: int) -> Tensor:
    return RankWeights(checkpoint, Group(), torch.float32).whole(f"{DOWN}.weight", 64, inner)


@pytest.mark.parametrize(("heads", "kv_heads", "world_size", "expected"), [
    (8, 4, 2, [(4, 2), (4, 2)]), (8, 2, 4, [(2, 1)] * 4), (9, 3, 2, [(3, 1), (6, 2)]),
    (14, 2, 4, [(3, 1), (4, 1), (3, 1), (4, 1)]), (15, 5, 4, [(3, 1), (3, 1), (3, 1), (6, 2)]),
    (10, 1, 3, [(3, 1), (3, 1), (4, 1)])])
def test_heads_are_dealt_out_by_those_that_they_read(
    tmp_path: Path, heads: int, kv_heads: int, world_size: int, expected: list[tuple[int, int]]
) -> None:
    model = make_tiny(tmp_path, heads=heads, kv_heads=kv_heads, head_dim=8, hidden=8 * heads)
    attention = read_model_config(model).attention
    owned = OwnHeads.of_all(attention, world_size)
    assert [(len(own.heads), len(own.kv_heads)) for own in owned] == expected
    assert [head for own in owned for head in own.heads] == [*range(heads)]
    for own in owned:
        readers = len(own.heads) // len(own.kv_heads)
        assert [head // attention.share for head in own.heads] == [own.kv_heads[i // readers]
                                                                   for i in range(len(own.heads))]


def test_what_has_other_bits_is_said(tmp_path: Path) -> None:
    make_tiny(tmp_path, heads=14, kv_heads=2, head_dim=16, hidden=56, intermediate=100)
    assert [Decoder.load(tmp_path, None, Group(0, world_size)).inequality for world_size in (1, 2, 4)] == [
        "", "", "14 heads, which read 2 KV heads, cannot be dealt out evenly over 4 shards"]
