"""Families like Llama, but with layer norm."""

from dataclasses import replace

from penstock.shard.models.config import ModelConfig
from penstock.shard.models.families.usual import Usual, window_everywhere
from penstock.shard.models.keys import Keys
from penstock.shard.models.names import BlockNames, TensorNames
from penstock.shard.models.parts import HeadNorm, NormConfig

STARCODER2 = Usual(
    norm_eps="norm_epsilon", is_centred=True, norm_bias=True, is_gated=False, qkv_bias="use_bias",
    output_bias="use_bias", mlp_bias="use_bias", windows=window_everywhere,
    names=TensorNames(block=BlockNames(up="mlp.c_fc", down="mlp.c_proj")))
NEMOTRON = Usual(
    norm_eps="norm_eps", is_centred=True, norm_bias=True, norm_offset=1.0, is_gated=False,
    qkv_bias="attention_bias", output_bias="attention_bias", mlp_bias="mlp_bias",
    rotary_share=0.5)
STABLELM = Usual(
    norm_eps="layer_norm_eps", is_centred=True, norm_bias=True, qkv_bias="use_qkv_bias",
    rotary_share=0.25)
PHI2 = Usual(
    norm_eps="layer_norm_eps", is_centred=True, norm_bias=True, is_gated=False,
    qkv_bias=True, output_bias=True, mlp_bias=True, rotary_share=0.5, head_bias=True,
    is_parallel=True, names=TensorNames(norm="model.final_layernorm", block=BlockNames(
        attention_output="self_attn.dense", feed_forward_norm="", up="mlp.fc1", down="mlp.fc2")))


def stablelm(keys: Keys) -> ModelConfig:
    """Some norm each head, and in some both halves of a block read one norm."""
    family = STABLELM
    names = BlockNames(q_norm="self_attn.q_layernorm.norms.{head}", k_norm="self_attn.k_layernorm.norms.{head}")
    if keys.switch("use_parallel_residual"):
        names, family = replace(names, feed_forward_norm=""), replace(family, is_parallel=True)
    if keys.switch("qk_layernorm"):
        family = replace(family, head_norm=HeadNorm.OWN)
    config = replace(family, names=TensorNames(block=names))(keys)
    return replace(config, head_norm=NormConfig(config.norm.eps, is_centred=True))


def phi2(keys: Keys) -> ModelConfig:
    keys.expect("qk_layernorm", False)
    return PHI2(keys)
