"""Reads a GGUF file's metadata and the places of its tensors
(https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). The tensors themselves are left alone."""

import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from penstock.checkpoints.gguf.metadata import GgufError, Metadata
from penstock.system.ggml_types import GGML_TYPES, OTHERS

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_HEADER_BYTES = 100_000_000           # of a vocabulary of a quarter of a million tokens: 15 MB
MAX_KEYS = 65_536
MAX_TENSORS = 65_536
MAX_ITEMS = 2**21                        # of an array
MAX_NAME_BYTES = 1024
MAX_AXES = 4
TEXT, ARRAY = 8, 9
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""By the number of a type of values, how `struct` names it."""
NAMES_OF_TYPES = {kind.number: name for name, kind in GGML_TYPES.items()}


@dataclass(frozen=True, slots=True)
class Tensor:
    """Where a tensor is."""

    path: Path
    kind: str                            # of GGML_TYPES
    shape: tuple[int, ...]               # the longest stride first, as torch has it
    offset: int                          # of its first byte in the file

    @property
    def num_bytes(self) -> int:
        return prod(self.shape[:-1]) * GGML_TYPES[self.kind].row_bytes(self.shape[-1])


@dataclass(frozen=True, slots=True)
class GgufFile:
    """The metadata and the tensors of one file."""

    metadata: Metadata
    tensors: dict[str, Tensor]


def read(path: Path) -> GgufFile:
    """Reads a file's header. Raises GgufError, which names the file, the field, the limit and the value."""
    if not path.is_file():               # a pipe would be waited for
        raise GgufError(path, "no such file" if not path.exists() else "it is no file")
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _Header(path, content).read()
    except OSError as error:
        raise GgufError(path, f"it cannot be read: {error.strerror}") from error
    except ValueError as error:
        if isinstance(error, GgufError):
            raise
        raise GgufError(path, "it is empty") from error


class _Header:
    """Reads from the first byte on; `at` is the next one. The bytes in front of it have been checked."""

    def __init__(self, path: Path, content: mmap.mmap) -> None:
        self._path, self._content = path, content
        self._at = 0
        self._size = len(content)
        self._field = "the header"

    def read(self) -> GgufFile:
        self._check_version()
        num_tensors = self._count("the number of tensors", MAX_TENSORS)
        num_keys = self._count("the number of keys", MAX_KEYS)
        values: dict[str, Any] = {}
        for _ in range(num_keys):
            self._field = "a key"
            key = self._field = self._text(MAX_NAME_BYTES)
            if key in values:
                raise self._error("it is there twice")
            values[key] = self._value()
        metadata = Metadata(self._path, values)
        alignment = metadata.integer("general.alignment", 32, least=8, most=2**20)
        if alignment & alignment - 1:
            raise metadata.error("general.alignment", "a power of two")
        found = dict(self._tensor() for _ in range(num_tensors))
        if len(found) < num_tensors:
            raise GgufError(self._path, "two tensors have one name")
        begin = -(-self._at // alignment) * alignment
        return GgufFile(metadata, {name: self._placed(name, tensor, begin) for name, tensor in found.items()})

    def _check_version(self) -> None:
        if self._content[:4] != MAGIC:
            raise GgufError(self._path, "it is no GGUF file: it does not begin with GGUF")
        self._at = 4
        version = self._number("I")
        if version not in VERSIONS:
            kind = "big-endian" if version >= 1 << 16 and not version & 0xFFFF else f"of version {version}"
            raise GgufError(self._path, f"it is {kind}; little-endian files of version 2 and 3 are read")

    def _count(self, what: str, most: int) -> int:
        self._field = what
        count: int = self._number("Q")
        if count > most:
            raise self._error(f"{count}, at most {most} are read")
        return count

    def _take(self, length: int) -> int:
        """Returns where the next bytes begin, and goes behind them."""
        at, end = self._at, self._at + length
        if end > self._size:
            raise self._error(f"the file is cut short or damaged: it has {self._size} bytes, and this ends at {end}")
        if end > MAX_HEADER_BYTES:
            raise self._error(f"this ends at byte {end}, at most {MAX_HEADER_BYTES} are read of a header")
        self._at = end
        return at

    def _number(self, kind: str) -> Any:
        return struct.unpack_from(f"<{kind}", self._content, self._take(struct.calcsize(f"<{kind}")))[0]

    def _text(self, most: int = MAX_HEADER_BYTES) -> str:
        length = self._number("Q")
        if length > most:
            raise self._error(f"a text of {length} bytes, at most {most} are read")
        at = self._take(length)
        try:
            return self._content[at : at + length].decode()
        except UnicodeDecodeError as error:
            raise self._error(f"a text that is no UTF-8: {error.reason}") from error

    def _value(self) -> Any:
        kind = self._number("I")
        if kind == TEXT:
            return self._text()
        if kind == ARRAY:
            return self._array()
        return self._number(self._kind_of_number(kind))

    def _kind_of_number(self, kind: int) -> str:
        if kind not in NUMBERS:
            raise self._error(f"a value of type {kind}, which there is not")
        return NUMBERS[kind]

    def _array(self) -> list[Any]:
        kind, length = self._number("I"), self._number("Q")
        if length > MAX_ITEMS:
            raise self._error(f"an array of {length}, at most {MAX_ITEMS} are read")
        if kind == TEXT:
            return self._texts(length)
        if kind == ARRAY:
            raise self._error("an array of arrays, which no key has")
        packed = f"<{length}{self._kind_of_number(kind)}"
        return list(struct.unpack_from(packed, self._content, self._take(struct.calcsize(packed))))

    def _texts(self, length: int) -> list[str]:
        """Reads texts as `_text` does, but a vocabulary of 150,000 in 50 ms."""
        self._take(8 * length)           # so many bytes there are at least
        content, size, length_at = self._content, min(self._size, MAX_HEADER_BYTES), struct.Struct("<Q").unpack_from
        texts: list[str] = []
        at = self._at - 8 * length
        try:
            for _ in range(length):
                begin = at + 8
                at = begin + length_at(content, at)[0]
                if at > size:
                    break
                texts.append(content[begin:at].decode())
        except UnicodeDecodeError as error:
            raise self._error(f"text {len(texts)} is no UTF-8: {error.reason}") from error
        except struct.error:
            at = size + 1
        self._at = 0
        self._take(at)
        return texts

    def _tensor(self) -> tuple[str, Tensor]:
        self._field = "a tensor's name"
        name = self._field = self._text(MAX_NAME_BYTES)
        num_axes = self._number("I")
        if not 1 <= num_axes <= MAX_AXES:
            raise self._error(f"a tensor of {num_axes} axes, from 1 to {MAX_AXES} are read")
        lengths = [self._number("Q") for _ in range(num_axes)]
        number, offset = self._number("I"), self._number("Q")
        if number not in NAMES_OF_TYPES:
            kind = OTHERS.get(number, f"of the unknown type {number}")
            raise self._error(f"the tensor is {kind}; {', '.join(GGML_TYPES)} are read")
        kind = NAMES_OF_TYPES[number]
        if min(lengths) < 1 or prod(lengths) >= 2**48:
            raise self._error(f"a tensor of {' x '.join(map(str, lengths))} numbers")
        if lengths[0] % GGML_TYPES[kind].size:
            raise self._error(f"rows of {lengths[0]} numbers, which blocks of {GGML_TYPES[kind].size}, as {kind} has "
                              "them, do not divide")
        return name, Tensor(self._path, kind, tuple(reversed(lengths)), offset)

    def _placed(self, name: str, tensor: Tensor, begin: int) -> Tensor:
        placed = Tensor(tensor.path, tensor.kind, tensor.shape, begin + tensor.offset)
        if (end := placed.offset + placed.num_bytes) > self._size:
            raise GgufError(self._path, f"{name}: the file is cut short or damaged: it has {self._size} bytes, and the "
                                        f"tensor ends at {end}")
        if tensor.offset % 4:
            raise GgufError(self._path, f"{name}: offset {tensor.offset}, expected a multiple of 4")
        return placed

    def _error(self, message: str) -> GgufError:
        return GgufError(self._path, f"{self._field}: {message}")


