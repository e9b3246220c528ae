"""The architectures that the decoder computes, by their name in config.json, and what each adds to it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """How an architecture differs: a constant, or the key of config.json that says it for each checkpoint."""

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
