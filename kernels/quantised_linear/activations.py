"""The number formats of the inputs of a linear over coded weights."""

from enum import StrEnum

import torch
from torch import Tensor

MOST = 127.0                             # the largest whole number that an input becomes
LEAST = 2.0**-100                        # a largest input below this is 0: its inverse may be no float32


class Activations(StrEnum):
    """One choice for a model, and part of its numerics: it never depends on the batch."""

    INT8 = "int8"
    FLOAT = "float"


def quantise(piece: Tensor) -> tuple[Tensor, Tensor]:
    """Returns each row of a piece [T, k] of the inputs as whole numbers from -127 to 127, and its scale [T].

    In float32: the scale is max|x| / 127, a whole number x * (127 / max|x|), rounded to the nearest, halves to the even
    one. A row with a NaN or an infinity has the scale NaN.
    """
    piece = piece.float()
    largest = piece.abs().amax(dim=1)
    is_zero = largest < LEAST
    scale = torch.where(is_zero, 0.0, largest / MOST)
    inverse = torch.where(is_zero, 0.0, MOST / largest)
    whole = torch.round(piece * inverse[:, None])
    is_finite = torch.isfinite(largest)
    return torch.where(is_finite[:, None], whole, 0.0), torch.where(is_finite, scale, torch.nan)
