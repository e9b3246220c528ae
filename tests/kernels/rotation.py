"""The angles that positions are rotated by."""

import torch


def angles(num_positions, rotated):
    """Cosines and sines of Llama's angles, each [positions, rotated / 2]."""
    frequency = 10000.0 ** (-torch.arange(0, rotated, 2) / rotated)
    angle = torch.arange(num_positions)[:, None] * frequency
    return angle.cos(), angle.sin()
