"""The signs that processes give the launcher by their pipes."""

from enum import Enum


class Sign(bytes, Enum):
    """A sign of a process to the launcher, a byte."""

    ALIVE = b"."
    """It makes progress."""
    READY = b"!"
    """It can do its work from now on."""
    RESTING = b"-"
    """It has given up all memory but that of its weights, and waits until it is to do its work again."""


PEER_LOST = 75
"""The exit code of a shard that ends because another one is gone: it is in order itself, and may be started again."""
