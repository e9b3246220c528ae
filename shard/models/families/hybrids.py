"""Families in which most blocks carry a state from token to token, and only some have keys and values."""

import math
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from penstock.kernels.route.form import RouteForm
from penstock.shard.models.config import ModelConfig
from penstock.shard.models.families.llama import granite, rotating
from penstock.shard.models.families.mixtures import GRANITE_NAMES, QWEN_NAMES, of_sparse_blocks, top_k, with_experts
from penstock.shard.models.families.usual import FULL, MAX_HEADS, Usual
from penstock.shard.models.keys import Keys
from penstock.shard.models.names import BlockNames, TensorNames
from penstock.shard.models.parts import ExpertsLayout, HeadNorm, MlpConfig, Qkv, RecurrenceConfig, RecurrenceLayout

MAX_DIM = 512                            # of a head's matrix
MAX_CONV_WIDTH = 16
RECURRENT = ("linear_attention", "mamba")
QWEN3_NEXT = Usual(
    head_norm=HeadNorm.SHARED, rotary_share=0.25, norm_offset=1.0, qkv=Qkv.GATED,
    qkv_bias="attention_bias", output_bias="attention_bias", names=QWEN_NAMES)
GRANITE_HYBRID_BLOCK = replace(
    GRANITE_NAMES.block, recurrence="mamba", gate_up="shared_mlp.input_linear", down="shared_mlp.output_linear")
BAMBA = Usual(rotary_share=0.5, qkv_bias="attention_bias", output_bias="attention_bias", mlp_bias="mlp_bias",
              names=TensorNames(norm="model.final_layernorm", block=BlockNames(
                  recurrence="mamba", feed_forward_norm="pre_ff_layernorm", gate="feed_forward.gate_proj",
                  up="feed_forward.up_proj", down="feed_forward.down_proj")))


def qwen3_next(keys: Keys) -> ModelConfig:
    """Gated delta nets, and attention whose outputs have gates; all tokens have a shared expert, by its own weight."""
    config = _with_delta_nets(QWEN3_NEXT(keys), keys, RecurrenceLayout.BY_GROUP)
    return of_sparse_blocks(_with_shared(config, keys), keys)


def qwen3_5(keys: Keys) -> ModelConfig:
    return _with_delta_nets(QWEN3_NEXT(keys), keys, RecurrenceLayout.APART)


def qwen3_5_of_images(keys: Keys) -> ModelConfig:
    """The decoder of a model that reads images too."""
    config = qwen3_5(keys)
    return replace(config, names=replace(
        config.names, embedding="model.language_model.embed_tokens", norm="model.language_model.norm",
        blocks="model.language_model.layers.{index}"))


def qwen3_5_moe(keys: Keys) -> ModelConfig:
    return _with_shared(qwen3_5(keys), keys)


def granite_hybrid(keys: Keys) -> ModelConfig:
    """Mamba-2 and attention, which mostly does not rotate; every block has a dense network, beside which may be
    experts."""
    config = granite(keys if keys.get("intermediate_size") is not None else keys.including({"intermediate_size": 1}))
    if keys.get("position_embedding_type") != "rope":
        config = rotating(config, [False] * config.num_layers)
    shared = keys.integer("shared_intermediate_size")
    config = replace(
        _with_mamba(config, keys, _recurrent_blocks(keys, config.num_layers, ())),
        mlp=MlpConfig(shared, config.mlp.activation, is_stacked=True),
        names=replace(GRANITE_NAMES, block=GRANITE_HYBRID_BLOCK))
    if not keys.integer("num_local_experts", least=0):
        return config
    route = RouteForm(top_k(keys, "num_local_experts"), is_normalised=True)
    config = with_experts(config, keys, route, "num_local_experts", "intermediate_size")
    assert config.experts is not None
    return replace(config, experts=replace(config.experts, layout=ExpertsLayout.STACKED, shared_size=shared))


def bamba(keys: Keys) -> ModelConfig:
    """Mamba-2, and attention in a few blocks."""
    config = BAMBA(keys)
    attention = keys.get("attn_layer_indices") or []
    if not isinstance(attention, list):
        raise keys.error("attn_layer_indices", "a list of numbers of layers")
    return _with_mamba(config, keys, _recurrent_blocks(keys, config.num_layers, attention))


def _with_delta_nets(config: ModelConfig, keys: Keys, layout: RecurrenceLayout) -> ModelConfig:
    interval = keys.integer("full_attention_interval", 4)
    attention = range(interval - 1, config.num_layers, interval)
    num_heads, num_groups = (
        keys.integer(key, most=MAX_HEADS) for key in ("linear_num_value_heads", "linear_num_key_heads"))
    if num_heads % num_groups:
        raise keys.error("linear_num_key_heads", f"a divisor of linear_num_value_heads = {num_heads}")
    keys.expect("hidden_act", "silu")
    form = RecurrenceConfig(
        num_heads, num_groups, keys.integer("linear_key_head_dim", most=MAX_DIM),
        keys.integer("linear_value_head_dim", most=MAX_DIM),
        keys.integer("linear_conv_kernel_dim", least=2, most=MAX_CONV_WIDTH), layout, is_delta=True)
    return replace(config, recurrence=form, recurrent_blocks=_recurrent_blocks(keys, config.num_layers, attention))


def _with_mamba(config: ModelConfig, keys: Keys, recurrent: frozenset[int]) -> ModelConfig:
    keys.expect("mamba_n_groups", 1)
    keys.expect("mamba_proj_bias", False)
    keys.expect("hidden_act", "silu")
    num_heads = keys.integer("mamba_n_heads", most=MAX_HEADS)
    width = keys.integer("mamba_expand") * config.hidden_size
    value_dim = width // num_heads
    if keys.get("mamba_d_head") not in ("auto", value_dim) or value_dim * num_heads != width:
        raise keys.error("mamba_n_heads", f"heads of mamba_d_head numbers, mamba_expand * hidden_size = {width} in all")
    if not 0 < value_dim <= MAX_DIM:
        raise keys.error("mamba_n_heads", f"heads of at most {MAX_DIM} numbers, which are {value_dim}")
    form = RecurrenceConfig(
        num_heads, 1, keys.integer("mamba_d_state", most=MAX_DIM), value_dim,
        keys.integer("mamba_d_conv", least=2, most=MAX_CONV_WIDTH), RecurrenceLayout.STACKED,
        conv_bias=keys.switch("mamba_conv_bias"), steps=_steps(keys))
    return replace(config, recurrence=form, recurrent_blocks=recurrent)


def _steps(keys: Keys) -> tuple[float, float]:
    values: Any = keys.get("time_step_limit")
    if values is None:
        return 0.0, float("inf")
    if isinstance(values, list):         # transformers 5 writes infinity so
        values = [math.inf if value == {"__float__": "Infinity"} else value for value in values]
    numbers = isinstance(values, list) and all(isinstance(value, (int, float)) for value in values)
    if not numbers or len(values) != 2 or not 0 <= values[0] <= values[1]:
        raise keys.error("time_step_limit", "two numbers of at least 0, the smaller one first")
    return float(values[0]), float(values[1])


def _recurrent_blocks(keys: Keys, num_layers: int, attention: Collection[Any]) -> frozenset[int]:
    """Returns the blocks that carry a state: by `layer_types`, or all but those of `attention`."""
    kinds = keys.get("layer_types")
    if kinds is None:
        kinds = [FULL if block in attention else RECURRENT[0] for block in range(num_layers)]
    known = (*RECURRENT, FULL, "attention")
    if not isinstance(kinds, list) or len(kinds) != num_layers or any(kind not in known for kind in kinds):
        raise keys.error("layer_types", f"a list of {num_layers}, each one of {', '.join(known)}")
    recurrent = frozenset(block for block, kind in enumerate(kinds) if kind in RECURRENT)
    if len(recurrent) in (0, num_layers):
        raise keys.error("layer_types", f"some of {', '.join(RECURRENT)} and some of {FULL}, attention")
    return recurrent


def _with_shared(config: ModelConfig, keys: Keys) -> ModelConfig:
    """Returns the config with experts, and one that all tokens have, by a weight of its own."""
    route = RouteForm(top_k(keys, "num_experts"), is_normalised=keys.switch("norm_topk_prob", True))
    config = with_experts(config, keys, route, "num_experts", "moe_intermediate_size")
    assert config.experts is not None
    shared = keys.integer("shared_expert_intermediate_size")
    return replace(config, experts=replace(config.experts, shared_size=shared, is_shared_gated=True))
