"""Gemma: the weights of norms are stored less 1, the embedding is scaled, and from the second on there are norms behind
each half, too."""

from dataclasses import replace

from penstock.shard.models.config import ModelConfig
from penstock.shard.models.families.llama import rotating_by_kind
from penstock.shard.models.families.usual import Usual, windows_by_kind
from penstock.shard.models.keys import Keys
from penstock.shard.models.names import BlockNames, TensorNames
from penstock.shard.models.parts import EmbeddingConfig, HeadNorm

TANH = "gelu_pytorch_tanh"
GEMMA1 = Usual(
    norm_offset=1.0, activation="hidden_activation", default_activation=TANH, qkv_bias="attention_bias",
    output_bias="attention_bias")
GEMMA2 = replace(GEMMA1, windows=windows_by_kind(2), names=TensorNames(block=BlockNames(
    attention_post_norm="post_attention_layernorm", feed_forward_norm="pre_feedforward_layernorm",
    feed_forward_post_norm="post_feedforward_layernorm")))
GEMMA3 = replace(GEMMA2, head_norm=HeadNorm.SHARED, windows=windows_by_kind(6))


def gemma1(keys: Keys) -> ModelConfig:
    """Old files say gelu for what was trained as its approximation."""
    family = GEMMA1
    if keys.get("hidden_activation") is None and keys.get("hidden_act") not in (None, "gelu"):
        family = replace(family, activation="hidden_act")
    return _scaled(family(keys))


def gemma2(keys: Keys) -> ModelConfig:
    return _of_query_scale(GEMMA2(keys), keys)


def gemma3(keys: Keys) -> ModelConfig:
    """Layers with a window have a rotation of their own, which nothing scales. Where tokens see those behind them, too,
    half of a window is before a token, and half behind it."""
    config = _of_query_scale(rotating_by_kind(GEMMA3, keys, pattern=6, local_theta="rope_local_base_freq"), keys)
    if not keys.switch("use_bidirectional_attention"):
        return config
    windows = tuple(window // 2 for window in config.attention.windows)
    return replace(config, attention=replace(config.attention, windows=windows, is_causal=False))


def _of_query_scale(config: ModelConfig, keys: Keys) -> ModelConfig:
    attention = replace(config.attention, scale=keys.number("query_pre_attn_scalar") ** -0.5,
                        softcap=_cap(keys, "attn_logit_softcapping"))
    head = replace(config.head, softcap=_cap(keys, "final_logit_softcapping"))
    return _scaled(replace(config, attention=attention, head=head))


def _scaled(config: ModelConfig) -> ModelConfig:
    return replace(config, embedding=EmbeddingConfig(multiplier=config.hidden_size**0.5))


def _cap(keys: Keys, key: str) -> float:
    return 0.0 if keys.get(key) is None else keys.number(key)
