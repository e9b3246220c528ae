"""The architectures that the decoder computes, by their name in config.json, and what each adds to it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """How an architecture differs: a constant, or the key of config.json that says it for each checkpoint."""

    qkv_bias: bool | str = False
    output_bias: bool | str = False      # of the attention's output projection
    mlp_bias: bool | str = False


FAMILIES = {
    "LlamaForCausalLM": Family(qkv_bias="attention_bias", output_bias="attention_bias", mlp_bias="mlp_bias"),
}
