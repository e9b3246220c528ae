"""The activations behind the linears of poolers and heads."""

from collections.abc import Callable

import torch
from torch import Tensor

from penstock.kernels.activation import activate
from penstock.shard.models.families.usual import ACTIVATIONS as OF_NETWORKS

OWN: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "sigmoid": torch.sigmoid}


def activated(name: str, x: Tensor) -> Tensor:
    """Returns the activation of each number of x, float32 [R, N]: a row's bits are its own."""
    if name == "identity":
        return x
    if name not in OWN:
        return activate(x, OF_NETWORKS[name])
    # Vector units give other bits than what is left over for single numbers: so each row is an array by itself.
    return torch.stack([OWN[name](row.clone()) for row in x]) if len(x) else x
