"""Command-R: both halves of a block read one layer norm, logits are scaled."""

from dataclasses import replace

from penstock.shard.models.config import ModelConfig
from penstock.shard.models.families.llama import rotating
from penstock.shard.models.families.usual import Usual, windows_by_kind
from penstock.shard.models.keys import Keys
from penstock.shard.models.names import BlockNames, TensorNames
from penstock.shard.models.parts import HeadNorm

COHERE = Usual(
    norm_eps="layer_norm_eps", is_centred=True, qkv_bias="attention_bias", output_bias="attention_bias",
    is_interleaved=True, is_parallel=True, names=TensorNames(block=BlockNames(feed_forward_norm="")))
COHERE2 = replace(COHERE, windows=windows_by_kind(4))


def cohere(keys: Keys) -> ModelConfig:
    """Of the first generation, R+ norms each head of q and of k by weights of its own."""
    has_head_norms = keys.switch("use_qk_norm")
    return _scaled(replace(COHERE, head_norm=HeadNorm.OWN if has_head_norms else HeadNorm.NONE)(keys), keys)


def cohere2(keys: Keys) -> ModelConfig:
    """In R7B and Command A, layers without a window don't rotate."""
    config = COHERE2(keys)
    return _scaled(rotating(config, [bool(window) for window in config.attention.windows]), keys)


def _scaled(config: ModelConfig, keys: Keys) -> ModelConfig:
    return replace(config, head=replace(config.head, multiplier=keys.number("logit_scale")))
