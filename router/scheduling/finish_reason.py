"""Why a sequence ended."""

from enum import Enum


class FinishReason(Enum):
    """Tells why a sequence ended; the values of the first three are TGI's words."""

    LENGTH = "length"
    EOS_TOKEN = "eos_token"
    STOP_SEQUENCE = "stop_sequence"
    CANCELLED = "cancelled"
    ERROR = "error"
    POOLED = "pooled"
    """Its vector or its scores are there."""
    MOVED = "moved"
    """Another group goes on with it."""
