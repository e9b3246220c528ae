"""Families whose tokens know their positions by ALiBi alone."""

from dataclasses import replace

from penstock.shard.models.config import ModelConfig
from penstock.shard.models.families.usual import Positions, Usual
from penstock.shard.models.keys import Keys
from penstock.shard.models.names import BlockNames, TensorNames
from penstock.shard.models.parts import Qkv

LAYER_NORMED = Usual(
    is_centred=True, is_gated=False, inner_multiple=4, positions=Positions.ALIBI, default_context=2048, kv_heads="")
BLOOM = replace(
    LAYER_NORMED, norm_bias=True, default_activation="gelu_pytorch_tanh", qkv=Qkv.BY_HEAD, qkv_bias=True,
    output_bias=True, mlp_bias=True, aliases={
        "hidden_size": "n_embed", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
        "rms_norm_eps": "layer_norm_epsilon", "max_position_embeddings": "seq_length"},
    names=TensorNames(
        embedding="transformer.word_embeddings", embedding_norm="transformer.word_embeddings_layernorm",
        norm="transformer.ln_f", blocks="transformer.h.{index}", block=BlockNames(
            qkv="self_attention.query_key_value", attention_output="self_attention.dense", up="mlp.dense_h_to_4h",
            down="mlp.dense_4h_to_h")))
MPT = replace(
    LAYER_NORMED, default_activation="gelu", qkv=Qkv.STACKED, aliases={
        "hidden_size": "d_model", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads",
        "rms_norm_eps": "layer_norm_epsilon", "max_position_embeddings": "max_seq_len"},
    names=TensorNames(
        embedding="transformer.wte", norm="transformer.norm_f", blocks="transformer.blocks.{index}", block=BlockNames(
            attention_norm="norm_1", qkv="attn.Wqkv", attention_output="attn.out_proj", feed_forward_norm="norm_2",
            up="ffn.up_proj", down="ffn.down_proj")))


def bloom(keys: Keys) -> ModelConfig:
    keys.expect("apply_residual_connection_post_layernorm", False)
    return BLOOM(keys)


def mpt(keys: Keys) -> ModelConfig:
    """Its attention has a section of its own."""
    own = keys.section("attn_config")
    for key, value in (("attn_type", "multihead_attention"), ("alibi", True), ("alibi_bias_max", 8), ("qk_ln", False),
                       ("prefix_lm", False)):
        own.expect(key, value)
    keys.expect("no_bias", True)
    keys.expect("logit_scale", None)
    config = replace(MPT, inner_multiple=keys.integer("expansion_ratio"))(keys)
    attention = config.attention
    clip = 0.0 if own.get("clip_qkv") is None else own.number("clip_qkv")
    scale = attention.scale if own.get("softmax_scale") is None else own.number("softmax_scale")
    return replace(config, attention=replace(attention, clip=clip, scale=scale))
