"""The attention half of a block is its ops, one after the other: in a CUDA graph launches cost next to nothing."""

from kernels.attention_layer.reference import attention_layer, prepare_tokens, prepare_weights

__all__ = ["attention_layer", "prepare_tokens", "prepare_weights"]
