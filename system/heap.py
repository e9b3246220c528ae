"""The heap of a process that begins to serve: it has all objects that it will keep."""

import ctypes
import gc
from contextlib import suppress


def freeze_heap() -> None:
    """Gives the system the memory that the C library keeps for later, if it is one that can, and has collections of
    garbage, for which all requests wait, pass over the objects that are here now."""
    gc.freeze()
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
