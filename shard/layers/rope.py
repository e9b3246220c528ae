"""Rotary position embedding: the angles of every position, shared by all blocks of a model."""

import torch

from penstock.kernels import dispatch
from penstock.shard.models.rotary_scaling import Rotation

POSITIONS = 1 << 16                      # whose angles are computed at once: in float64 they take four times the memory


class Rotary:
    """Holds the cosines and sines of every position's angles, float32 as in transformers, on the device of the ops.

    A GPU has the processor's bits.
    """

    def __init__(self, rotation: Rotation) -> None:
        frequencies = torch.tensor(rotation.frequencies, dtype=torch.float32)
        length = rotation.context_length
        self.cos, self.sin = torch.empty(
            2, length, len(frequencies), dtype=torch.float32, device=dispatch.device()).unbind()
        for begin in range(0, length, POSITIONS):
            positions = torch.arange(begin, min(begin + POSITIONS, length), dtype=torch.float32)
            angles = torch.outer(positions, frequencies).double()
            # By way of float64 they are the nearest float32 values, whichever vector unit torch finds.
            self.cos[begin:begin + POSITIONS] = (angles.cos() * rotation.amplitude).float()
            self.sin[begin:begin + POSITIONS] = (angles.sin() * rotation.amplitude).float()
