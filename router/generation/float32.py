"""float32, in which shards compute: numbers from and to JSON."""

import struct

_FLOAT32 = struct.Struct("<f")
_pack, _unpack = _FLOAT32.pack, _FLOAT32.unpack


def nearest_float32(value: float) -> float:
    """Returns the float32 that a shard is sent for `value`; OverflowError if it would be infinite."""
    number: float = _unpack(_pack(value))[0]
    return number


def shortest_float32(value: float) -> float:
    """Returns the number with the fewest digits that is `value` when read as a float32, which 9 digits always are."""
    packed = _pack(value)
    for digits in (6, 7, 8):
        short = float(f"{value:.{digits}g}")
        if _pack(short) == packed:
            return short
    return float(f"{value:.9g}")
