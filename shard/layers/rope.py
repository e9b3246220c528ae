"""Rotary position embedding: the angles of every position, shared by all blocks of a model."""

import torch

from penstock.kernels import dispatch
from penstock.shard.models.rotary_scaling import Rotation


class Rotary:
    """Holds the cosines and sines of every position's angles, float32 as in transformers, on the device of the ops.

    A GPU has the processor's bits.
    """

    def __init__(self, rotation: Rotation) -> None:
        frequencies = torch.tensor(rotation.frequencies, dtype=torch.float32)
        angles = torch.outer(torch.arange(rotation.context_length, dtype=torch.float32), frequencies).double()
        # By way of float64 they are the nearest float32 values, whichever vector unit torch finds.
        self.cos = (angles.cos() * rotation.amplitude).float().to(dispatch.device())
        self.sin = (angles.sin() * rotation.amplitude).float().to(dispatch.device())
