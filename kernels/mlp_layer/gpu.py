"""The feed-forward half of a block is its ops, one after the other."""

from penstock.kernels.mlp_layer.reference import mlp_layer, prepare

__all__ = ["mlp_layer", "prepare"]
