"""What fused kernels refuse; tests/shard/layers/test_fused.py compares their bits with those of the ops."""

import pytest
import torch

from penstock.kernels.activation import Activation
from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.experts import Experts
from penstock.kernels.fused.attention import AttentionLayer
from penstock.kernels.fused.blocks import Blocks
from penstock.kernels.fused.mixture import MixtureLayer
from penstock.kernels.fused.mlp import MlpLayer
from penstock.kernels.linear import pack
from penstock.kernels.paged_attention import allocate_cache
from penstock.kernels.route.form import RouteForm

HEADS, KV_HEADS, HEAD_DIM, WIDTH, INNER = 6, 2, 24, 80, 100
OUTPUTS = (HEADS + 2 * KV_HEADS) * HEAD_DIM


def make_attention(**changes):
    made = {
        "norm": torch.ones(WIDTH), "eps": 1e-5, "qkv": pack(torch.ones(OUTPUTS, WIDTH)), "qkv_bias": None,
        "head_norms": None, "cos": torch.ones(64, 8), "sin": torch.ones(64, 8),
        "output": pack(torch.ones(WIDTH, HEADS * HEAD_DIM), 8), "output_bias": None, "num_heads": HEADS,
        "num_kv_heads": KV_HEADS, "head_dim": HEAD_DIM, "scale": 0.2, "window": 0}
    return AttentionLayer(**made | changes)


def make_mlp(**changes):
    made = {"norm": torch.ones(WIDTH), "eps": 1e-5, "gate_up": pack(torch.ones(2 * INNER, WIDTH)), "gate_up_bias": None,
            "down": pack(torch.ones(WIDTH, INNER)), "down_bias": None}
    return MlpLayer(**made | changes)


def make_mixture(**changes):
    experts = Experts([pack(torch.ones(32, WIDTH))] * 3, [pack(torch.ones(WIDTH, 16))] * 3, Activation.SILU)
    made = {"norm": torch.ones(WIDTH), "eps": 1e-5, "router": pack(torch.ones(3, WIDTH)), "router_bias": None,
            "choice_bias": None, "form": RouteForm(2), "experts": experts, "has_shared": False, "shared_gate": None}
    return MixtureLayer(**made | changes)


def make_metadata(**changes):
    """Two sequences, of 3 tokens and of 1."""
    made = {"positions": torch.tensor([0, 1, 2, 20]), "slot_mapping": torch.tensor([0, 1, 2, 36]),
            "tables": torch.tensor([[0, 0], [1, 2]], dtype=torch.int32),
            "starts": torch.tensor([0, 20], dtype=torch.int32), "counts": torch.tensor([3, 1], dtype=torch.int32)}
    return AttentionMetadata(**made | changes)


def attend(layer, metadata, x=None, delta=None):
    cache = allocate_cache(
        3, block_size=16, num_kv_heads=KV_HEADS, head_dim=HEAD_DIM, dtype=torch.float32, device="cpu")
    return layer(torch.ones(4, WIDTH) if x is None else x, delta, metadata, cache, False)


@pytest.mark.parametrize(("changes", "message"), [
    ({"norm": torch.ones(WIDTH + 1)}, r"norm has shape \[81\], expected \[80\]"),
    ({"num_kv_heads": 3}, r"qkv is \[240, 80\], expected \[288, 80\]"),
    ({"output": pack(torch.ones(WIDTH, 8))}, r"output is \[80, 8\], expected \[80, 144\]"),
    ({"qkv_bias": torch.ones(WIDTH)}, r"qkv_bias has shape \[80\], expected \[240\]"),
    ({"output_bias": torch.ones(OUTPUTS)}, r"output_bias has shape \[240\], expected \[80\]"),
    ({"head_norms": (torch.ones(HEAD_DIM), torch.ones(8))}, r"k_norm has shape \[8\], expected \[24\]"),
    ({"cos": torch.ones(64, 8).half()}, r"cos \[64, 8\] has dtype torch.float16"),
    ({"sin": torch.ones(64, 7)}, r"sin has shape \[64, 7\], expected \[64, 8\]"),
    ({"cos": torch.ones(64, 13), "sin": torch.ones(64, 13)}, r"cos \[64, 13\] rotates 26 dimensions, a head has 24"),
])
def test_weights_of_attention_that_do_not_fit(cpu_kernels, changes, message):
    with pytest.raises(ValueError, match=f"AttentionLayer: {message}"):
        make_attention(**changes)


@pytest.mark.parametrize(("changes", "message"), [
    ({"norm": torch.ones(WIDTH + 1)}, r"norm has shape \[81\], expected \[80\]"),
    ({"gate_up": pack(torch.ones(160, WIDTH))}, r"down is \[80, 100\], gate_up \[160, 80\]"),
    ({"gate_up_bias": torch.ones(INNER)}, r"gate_up_bias has shape \[100\], expected \[200\]"),
    ({"down_bias": torch.ones(INNER)}, r"down_bias has shape \[100\], expected \[80\]"),
])
def test_weights_of_an_mlp_that_do_not_fit(cpu_kernels, changes, message):
    with pytest.raises(ValueError, match=f"MlpLayer: {message}"):
        make_mlp(**changes)


@pytest.mark.parametrize(("changes", "message"), [
    ({"norm": torch.ones(WIDTH + 1)}, r"norm has shape \[81\], expected \[80\]"),
    ({"router_bias": torch.ones(4)}, r"router_bias has shape \[4\], expected \[3\]"),
    ({"choice_bias": torch.ones(3).half()}, r"choice_bias \[3\] has dtype torch.float16"),
    ({"has_shared": True}, r"experts, their inputs and outputs are \[3, 80, 80\], expected \[4, 80, 80\]"),
])
def test_weights_of_a_mixture_that_do_not_fit(cpu_kernels, changes, message):
    with pytest.raises(ValueError, match=f"MixtureLayer: {message}"):
        make_mixture(**changes)


def test_inputs_that_do_not_fit(cpu_kernels):
    with pytest.raises(ValueError, match=r"AttentionLayer: x has shape \[5, 80\], expected \[4, 80\]"):
        attend(make_attention(), make_metadata(), torch.ones(5, WIDTH))
    with pytest.raises(ValueError, match=r"AttentionLayer: delta \[4, 80\] has dtype torch.float16"):
        attend(make_attention(), make_metadata(), delta=torch.ones(4, WIDTH).half())
    with pytest.raises(ValueError, match=r"MlpLayer: x has shape \[4, 81\], expected \[4, 80\]"):
        make_mlp()(torch.ones(4, 81), None, False)
    with pytest.raises(ValueError, match=r"MlpLayer: delta has shape \[3, 80\], expected \[4, 80\]"):
        make_mlp()(torch.ones(4, WIDTH), torch.ones(3, WIDTH), False)
    with pytest.raises(ValueError, match=r"MixtureLayer: x has shape \[4, 81\], expected \[4, 80\]"):
        make_mixture()(torch.ones(4, 81), None, False)


@pytest.mark.parametrize(("changes", "message"), [
    ({"positions": torch.arange(3)}, r"positions has shape \[3\], expected \[4\]"),
    ({"slot_mapping": torch.arange(4).int()}, r"slot_mapping \[4\] has dtype torch.int32, expected torch.int64"),
    ({"tables": torch.zeros(1, 2).int()}, r"tables has shape \[1, 2\], expected \[2, 2\]"),
    ({"counts": torch.ones(3).int()}, r"counts has shape \[3\], expected \[2\]"),
])
def test_metadata_that_does_not_fit(changes, message):
    with pytest.raises(ValueError, match=f"AttentionMetadata: {message}"):
        make_metadata(**changes)


def test_tokens_outside_the_cache_are_refused(cpu_kernels):
    layer = make_attention()
    attend(layer, make_metadata())
    with pytest.raises(ValueError, match=r"kv_write: slot_mapping \[0, 1, 2, 48\] does not lie within 3 blocks of 16"):
        attend(layer, make_metadata(slot_mapping=torch.tensor([0, 1, 2, 48])))
    with pytest.raises(ValueError, match=r"paged_attention: .* has 4 rows, counts are \[3, 2\] with sum 5"):
        attend(layer, make_metadata(counts=torch.tensor([3, 2], dtype=torch.int32)))
    with pytest.raises(ValueError, match=r"paged_attention: tables name blocks that are not among the cache's 3"):
        attend(layer, make_metadata(tables=torch.tensor([[0, 0], [3, 2]], dtype=torch.int32)))


def make_caches(*num_blocks):
    return [allocate_cache(number, block_size=16, num_kv_heads=KV_HEADS, head_dim=HEAD_DIM, dtype=torch.float32,
                           device="cpu") for number in num_blocks]


def test_blocks_that_do_not_fit(cpu_kernels):
    attention, mlp = make_attention(), make_mlp()
    with pytest.raises(ValueError, match=r"Blocks: 2 attention layers, 1 feed-forward layers"):
        Blocks([attention, attention], [mlp])
    narrow = make_mlp(norm=torch.ones(8), gate_up=pack(torch.ones(8, 8)), down=pack(torch.ones(8, 4)))
    with pytest.raises(ValueError, match=r"Blocks: layers have the widths \[8, 80\], expected one"):
        Blocks([attention], [narrow])
    blocks = Blocks([attention, attention], [mlp, mlp])
    with pytest.raises(ValueError, match=r"Blocks: x has shape \[5, 80\], expected \[4, 80\]"):
        blocks(torch.ones(5, WIDTH), make_metadata(), make_caches(3, 3))
    for caches in (make_caches(3), make_caches(3, 4)):
        with pytest.raises(ValueError, match=r"Blocks: caches are .*, expected 2 of one size"):
            blocks(torch.ones(4, WIDTH), make_metadata(), caches)


def test_blocks_refuse_tokens_outside_the_caches(cpu_kernels):
    blocks = Blocks([make_attention()] * 2, [make_mlp()] * 2)
    blocks(torch.ones(4, WIDTH), make_metadata(), make_caches(3, 3))
    with pytest.raises(ValueError, match=r"kv_write: slot_mapping \[0, 1, 2, 48\] does not lie within 3 blocks of 16"):
        blocks(torch.ones(4, WIDTH), make_metadata(slot_mapping=torch.tensor([0, 1, 2, 48])), make_caches(3, 3))
