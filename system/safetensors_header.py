"""The header of a safetensors file (https://huggingface.co/docs/safetensors, "Format"), checked before anything is
computed with what it says."""

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, BinaryIO

from penstock.system.json_objects import parse_object

BITS = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
        "F8_E5M2FNUZ": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32,
        "F32": 32, "U64": 64, "I64": 64, "F64": 64, "C64": 64}
"""Of one number, by its dtype."""
MAX_HEADER_BYTES = 100_000_000
"""The format's own limit."""
MAX_AXES = 64
MAX_NAME = 120
"""The characters of a tensor's name that a message shows."""


class HeaderError(ValueError):
    """A header makes no sense: the sentence goes on behind the file's path."""


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """The entry of a header for a tensor. `begin` and `end` count bytes from the first one of the file."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def parse_header(
    file: BinaryIO, size: int, max_bytes: int = MAX_HEADER_BYTES, max_values: int | None = None
) -> dict[str, TensorPlace]:
    """Reads the header of a file of `size` bytes, whose tensors fill the rest of it, in order.

    Raises OSError and HeaderError, also for a header of more than `max_bytes` bytes or about `max_values` JSON values.
    """
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or 8 + length > size:
        raise HeaderError(f"it is no safetensors file, or cut short or damaged: it has {size} bytes, its header "
                          f"{8 + length}")
    if length > max_bytes:
        raise HeaderError(f"it is damaged: its header has {length} bytes, at most {max_bytes} are allowed")
    try:
        header = parse_object(file.read(length), max_values)
    except ValueError as error:
        raise HeaderError(f"its header is damaged: {error}") from error
    header.pop("__metadata__", None)
    places = {name: _place(name, tensor, 8 + length) for name, tensor in header.items()}
    _check_order(places, 8 + length, size)
    return places


def _place(name: str, tensor: Any, begin: int) -> TensorPlace:
    if not isinstance(tensor, Mapping):
        raise _error(name, "expected an object", tensor)
    dtype, shape, offsets = tensor.get("dtype"), tensor.get("shape"), tensor.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in BITS:
        raise _error(name, "expected a dtype of safetensors", dtype)
    if not isinstance(shape, list) or len(shape) > MAX_AXES or not all(map(_is_size, shape)):
        raise _error(name, f"expected a shape of at most {MAX_AXES} axes", shape)
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)):
        raise _error(name, "expected two data_offsets", offsets)
    place = TensorPlace(dtype, tuple(shape), begin + offsets[0], begin + offsets[1])
    bits = BITS[dtype]
    for axis in sorted(shape):           # a 0 first, so that the product never grows beyond the file
        bits *= axis
        if bits > 1 << 66:
            raise _error(name, "expected fewer numbers", shape)
    if bits != 8 * (offsets[1] - offsets[0]):
        raise _error(name, f"expected {-(-bits // 8)} bytes of data, as its shape and dtype say", offsets)
    return place


def _is_size(number: object) -> bool:
    return type(number) is int and 0 <= number < 1 << 63


def _check_order(places: Mapping[str, TensorPlace], begin: int, size: int) -> None:
    """Raises HeaderError unless the tensors follow each other from the header to the end of the file."""
    spans = sorted((place.begin, place.end) for place in places.values())
    end = max((end for _, end in spans), default=begin)
    if end != size:
        raise HeaderError(f"it is cut short or damaged: it has {size} bytes, and by its header {end}")
    if any(last != first for (_, last), (first, _) in pairwise([(begin, begin), *spans])):
        raise HeaderError("its tensors overlap, or leave bytes between them")


def _error(name: str, expected: str, found: object) -> HeaderError:
    return HeaderError(f"its header is damaged: {name:.{MAX_NAME}}: {expected}, found {reprlib.repr(found)}")
