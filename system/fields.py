"""The keys of a file, read with errors that name the file, the key and the value."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

MAX_FOUND = 200
"""The characters of a value that a message shows."""


class FileError(ValueError):
    """A file is missing, damaged, or holds what is not read: the message names the file and the field."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{path}: {message}")


class Fields:
    """The keys of a file. Every method raises `error_type` for a value that is not what it returns."""

    error_type: ClassVar[type[FileError]] = FileError

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        self.path = path
        self._values = values

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def get(self, key: str, default: Any = None) -> Any:
        return self._values.get(key, default)

    def error(self, key: str, expected: str) -> FileError:
        found = f"{self._values[key]!r}" if key in self._values else "no such key"
        if len(found) > MAX_FOUND:
            found = f"{found[:MAX_FOUND]}… ({len(found)} characters)"
        return self.error_type(self.path, f"{key}: expected {expected}, found {found}")

    def integer(self, key: str, default: int | None = None, least: int = 0, most: int = 2**31 - 1) -> int:
        value = self._values.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.error(key, f"a whole number from {least} to {most}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._values.get(key, default)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < math.inf:
            raise self.error(key, "a number above 0")
        return float(value)

    def switch(self, key: str, default: bool) -> bool:
        value = self._values.get(key, default)
        if not isinstance(value, bool):
            raise self.error(key, "true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self._values.get(key, default)
        if not isinstance(value, str):
            raise self.error(key, "a text")
        return value

    def texts(self, key: str) -> list[str]:
        value = self._values.get(key)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(key, "an array of texts")
        return value

    def integers(self, key: str, length: int) -> list[int]:
        value = self._values.get(key)
        if not isinstance(value, list) or len(value) != length or not all(type(item) is int for item in value):
            raise self.error(key, f"an array of {length} whole numbers")
        return value

    def numbers(self, key: str, length: int) -> list[float]:
        value = self._values.get(key)
        if not isinstance(value, list) or len(value) != length or not all(
                type(item) is float and not math.isnan(item) for item in value):
            raise self.error(key, f"an array of {length} numbers")
        return value
