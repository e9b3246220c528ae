"""Ids of tokens and numbers of blocks as arrays."""

import numpy as np
import numpy.typing as npt

from penstock.contract import ids

Ids = npt.NDArray[np.int64]
Blocks = npt.NDArray[np.int32]

NO_IDS: Ids = np.empty(0, np.int64)


def as_array(given: ids.Ids) -> Ids:
    """Returns the ids of an order as an array."""
    return np.asarray(given, np.int64) if len(given) else NO_IDS
