"""The architectures that the decoder computes, by their name in config.json, and what each of them is made of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.shard.layers.attention import Attention
from penstock.shard.layers.mlp import Mlp
from penstock.shard.layers.protocols import AttentionClass, FeedForwardClass
from penstock.shard.models.names import USUAL_NAMES, TensorNames

if TYPE_CHECKING:
    from penstock.shard.models.config import ModelConfig  # which is read by way of this table


def attention_everywhere(config: "ModelConfig", block: int) -> AttentionClass:
    return Attention


def mlp_everywhere(config: "ModelConfig", block: int) -> FeedForwardClass:
    return Mlp


@dataclass(frozen=True, slots=True)
class Family:
    """How an architecture differs from Llama. A switch is a constant, or the key of config.json that holds it."""

    names: TensorNames = USUAL_NAMES
    attention: Callable[["ModelConfig", int], AttentionClass] = attention_everywhere  # of a block
    feed_forward: Callable[["ModelConfig", int], FeedForwardClass] = mlp_everywhere
    qkv_bias: bool | str = False
    output_bias: bool | str = False      # of the attention's output projection
    mlp_bias: bool | str = False
    has_head_norms: bool = False         # every head's q and k are normed before they are rotated
    has_window: bool | str = False       # of `sliding_window` tokens
    is_window_by_layer: bool = False     # in the layers of `layer_types`, or those from `max_window_layers` on
    head_dim: int | None = None          # if config.json has none; None: hidden_size / num_attention_heads


FAMILIES = {
    "LlamaForCausalLM": Family(qkv_bias="attention_bias", output_bias="attention_bias", mlp_bias="mlp_bias"),
    "MistralForCausalLM": Family(has_window=True),
    "Qwen2ForCausalLM": Family(qkv_bias=True, has_window="use_sliding_window", is_window_by_layer=True),
    "Qwen3ForCausalLM": Family(
        qkv_bias="attention_bias", output_bias="attention_bias", has_head_norms=True,
        has_window="use_sliding_window", is_window_by_layer=True, head_dim=128),
}
