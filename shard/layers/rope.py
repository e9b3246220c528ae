"""Rotary position embedding: the angles of every position, shared by all blocks of a model."""

import torch
from torch import Tensor

from kernels.rope import rope


class Rotary:
    """The angle of position p and dimension pair i is p / theta^(2i / D), in float32 as transformers computes it."""

    def __init__(self, head_dim: int, theta: float, num_positions: int) -> None:
        frequencies = 1.0 / (theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim))
        angles = torch.outer(torch.arange(num_positions, dtype=torch.float32), frequencies)
        # By way of float64 they are the nearest float32 values, whichever vector unit torch finds.
        self.cos = angles.double().cos().float()
        self.sin = angles.double().sin().float()

    def __call__(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """q [T, H, D] and k [T, KV, D] turned by the angles of positions, int64 [T]; new tensors."""
        return rope(q, k, self.cos, self.sin, positions)
