"""Falcon, of the first generation (7B), the second (40B, 180B, 11B) and the small ones with ALiBi (RW); the third is
Llama."""

from dataclasses import replace

from penstock.shard.models.config import ModelConfig
from penstock.shard.models.families.usual import Positions, Usual
from penstock.shard.models.keys import Keys
from penstock.shard.models.names import BlockNames, TensorNames
from penstock.shard.models.parts import Qkv

FALCON = Usual(
    aliases={
        "num_hidden_layers": "n_layer", "num_attention_heads": "n_head", "rms_norm_eps": "layer_norm_epsilon",
        "intermediate_size": "ffn_hidden_size", "hidden_act": "activation"},
    is_centred=True, norm_bias=True, is_gated=False, inner_multiple=4, qkv_bias="bias", output_bias="bias",
    mlp_bias="bias", default_context=2048)
BLOCK = BlockNames(
    qkv="self_attention.query_key_value", attention_output="self_attention.dense", up="mlp.dense_h_to_4h",
    down="mlp.dense_4h_to_h")
TWO_NORMS = replace(BLOCK, attention_norm="ln_attn", feed_forward_norm="ln_mlp")


def falcon(keys: Keys) -> ModelConfig:
    is_second = keys.switch("new_decoder_architecture")
    is_parallel = is_second or keys.switch("parallel_attn")
    has_alibi = keys.switch("alibi")
    names = BLOCK if not is_parallel else replace(BLOCK, feed_forward_norm="")
    if is_second and keys.integer("num_ln_in_parallel_attn", 2) == 2:
        names = TWO_NORMS
    is_multi_query = keys.switch("multi_query")
    family = replace(
        FALCON, is_parallel=is_parallel, positions=Positions.ALIBI if has_alibi else Positions.ROTARY,
        kv_heads="num_kv_heads" if is_second else "",
        qkv=Qkv.BY_KV_HEAD if is_second else Qkv.STACKED if is_multi_query else Qkv.BY_HEAD,
        names=TensorNames(embedding="transformer.word_embeddings", norm="transformer.ln_f",
                          blocks="transformer.h.{index}", block=names))
    if keys.get("max_position_embeddings") is None:
        keys = keys.including({"max_position_embeddings": family.default_context})
    config = family(keys)
    attention = config.attention
    if not is_second and is_multi_query:
        attention = replace(attention, num_kv_heads=1)
    # Its slopes are scaled as q·k is.
    return replace(config, attention=replace(attention, alibi=attention.scale if has_alibi else 0.0))
