"""The work of a process once it has all objects that it will keep and begins to serve."""

import ctypes
import gc
from contextlib import suppress


def settle() -> None:
    """Gives the system the memory that the C library keeps for later, if it is one that can, and has collections of
    garbage, for which all requests wait, pass over the objects that are here now."""
    gc.freeze()
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
