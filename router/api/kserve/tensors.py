"""Tensors: a name, a datatype, a shape, and values in the order of rows, as JSON or as bytes."""

import math
import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.router.errors import ValidationError
from penstock.router.shapes import shown

BYTES, BOOL = "BYTES", "BOOL"
_CODES = {
    BOOL: "?", "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q", "UINT8": "B", "UINT16": "H", "UINT32": "I",
    "UINT64": "Q", "FP16": "e", "FP32": "f", "FP64": "d"}
"""How `struct` knows the datatypes, but for BYTES."""
DATATYPES = (*_CODES, BYTES)
MAX_DIMENSIONS = 8
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor. The values of BYTES are texts, which are UTF-8 where they are sent."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: Sequence[Any]

    @property
    def rows(self) -> Iterator[Sequence[Any]]:
        """The parts of a tensor of two dimensions, or the whole of one of one dimension."""
        width = self.shape[-1]
        number = self.shape[0] if len(self.shape) > 1 else 1
        return (self.values[row * width:(row + 1) * width] for row in range(number))


def refused(name: str, datatype: str, shape: Sequence[int], rule: str) -> ValidationError:
    """Returns the error for a tensor that breaks a rule, which tells all that is known of it."""
    return ValidationError(f"`{name:.100}` ({datatype:.20} [{', '.join(map(str, shape[:MAX_DIMENSIONS + 1]))}]) {rule}")


def checked(name: str, datatype: str, shape: Sequence[int], values: Sequence[Any]) -> Tensor:
    """Returns a tensor of values that were flattened. Raises ValidationError, which names tensor, datatype and shape,
    and the value that is wrong."""
    number = _number(name, datatype, shape)
    if len(values) != number:
        raise refused(name, datatype, shape, f"must have {number} values. Given: {len(values)}")
    wrong = set(map(type, values)) - _types(datatype)
    if wrong:
        value = next(value for value in values if type(value) in wrong)
        raise refused(name, datatype, shape, f"must have values of its datatype. Given: {shown(value)}")
    if datatype not in (BYTES, BOOL) and values:
        _check_range(name, datatype, shape, values)
    return Tensor(name, datatype, tuple(shape), values)


def _types(datatype: str) -> set[type]:
    """Returns the types of JSON's values of a datatype."""
    if datatype in (BYTES, BOOL):
        return {str} if datatype == BYTES else {bool}
    return {int, float} if datatype.startswith("FP") else {int}


def _number(name: str, datatype: str, shape: Sequence[int]) -> int:
    """Returns how many values a tensor has."""
    if datatype not in DATATYPES:
        raise refused(name, datatype, shape, f"must have one of the datatypes {', '.join(DATATYPES)}")
    if not 1 <= len(shape) <= MAX_DIMENSIONS or min(shape) < 0:
        raise refused(name, datatype, shape, f"must have a shape of 1 to {MAX_DIMENSIONS} numbers >= 0")
    return math.prod(shape)


def _check_range(name: str, datatype: str, shape: Sequence[int], values: Sequence[Any]) -> None:
    for value in (min(values), max(values)):
        try:
            struct.pack(f"<{_CODES[datatype]}", value)
        except (struct.error, OverflowError) as error:
            raise refused(name, datatype, shape, f"must have values that fit its datatype. Given: {value}") from error


def flattened(data: object) -> list[Any]:
    """Returns the values of JSON lists, which may be nested as the shape is."""
    values: list[Any] = data if isinstance(data, list) else [data]
    while values and set(map(type, values)) == {list}:
        values = [value for part in values for value in part]
    return values


def from_bytes(name: str, datatype: str, shape: Sequence[int], data: bytes | memoryview) -> Tensor:
    """Returns a tensor of its binary form: values one after the other, texts behind their lengths. Raises
    ValidationError."""
    number = _number(name, datatype, shape)
    if datatype == BYTES:
        return checked(name, datatype, shape, _texts(name, shape, bytes(data), number))
    size = number * struct.calcsize(f"<{_CODES[datatype]}")
    if len(data) != size:
        raise refused(name, datatype, shape, f"must have {size} bytes of data. Given: {len(data)}")
    return Tensor(name, datatype, tuple(shape), struct.unpack(f"<{number}{_CODES[datatype]}", data))


def _texts(name: str, shape: Sequence[int], data: bytes, number: int) -> list[str]:
    """Returns texts, no more than one above the `number` that there must be."""
    texts: list[str] = []
    place = 0
    while place < len(data) and len(texts) <= number:
        start = place + _LENGTH.size
        place = start + _LENGTH.unpack(data[place:start])[0] if start <= len(data) else len(data) + 1
        if place > len(data):
            raise refused(name, BYTES, shape, f"must have texts behind their lengths, and value {len(texts)} ends "
                          f"behind its {len(data)} bytes of data")
        try:
            texts.append(data[start:place].decode())
        except UnicodeDecodeError as error:
            raise refused(name, BYTES, shape, f"must have texts in UTF-8, which value {len(texts)} is not") from error
    return texts


def to_bytes(tensor: Tensor) -> bytes:
    """Returns the binary form of a tensor."""
    if tensor.datatype == BYTES:
        texts = [text.encode() for text in tensor.values]
        return b"".join(part for text in texts for part in (_LENGTH.pack(len(text)), text))
    return struct.pack(f"<{len(tensor.values)}{_CODES[tensor.datatype]}", *tensor.values)


def listed(tensor: Tensor) -> list[Any]:
    """Returns the values of a tensor for JSON."""
    return tensor.values.tolist() if isinstance(tensor.values, array) else [*tensor.values]


def column(name: str, datatype: str, values: Sequence[Any]) -> Tensor:
    """Returns a tensor of one dimension."""
    return Tensor(name, datatype, (len(values),), values)

