"""The keys of a configuration file, read with errors that name the file, the key and the value."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MOST = 2**31 - 1
"""The largest size that kernels can index."""
MAX_FOUND = 200
"""The characters of a value that a message shows."""


class ModelConfigError(ValueError):
    """The configuration is missing, malformed, or asks for what this version does not do: names file, key and value."""


class Keys:
    """The keys of one JSON object. Every method raises ModelConfigError for a value that is not what it returns."""

    def __init__(
        self, path: Path, values: dict[str, Any], prefix: str = "", aliases: Mapping[str, str] | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        """prefix: of the keys' names in messages; aliases: by a key, another name that it may have; defaults: what a
        key says that is absent under both names"""
        self.path = path
        self._values = values
        self._prefix = prefix
        self._aliases = aliases or {}
        self._defaults = defaults or {}

    @classmethod
    def read(cls, path: Path) -> "Keys":
        if not path.is_file():           # a pipe would be waited for
            raise ModelConfigError(f"{path} {'is no file' if path.exists() else 'does not exist'}")
        try:
            values = json.loads(path.read_bytes())
        except RecursionError as error:
            raise ModelConfigError(f"{path} cannot be read: its values are nested too deeply") from error
        except (OSError, ValueError) as error:
            raise ModelConfigError(f"{path} cannot be read: {error}") from error
        if not isinstance(values, dict):
            raise ModelConfigError(f"{path}: expected an object of keys and values, found {type(values).__name__}")
        return cls(path, values)

    @property
    def names(self) -> set[str]:
        return set(self._values)

    def as_json(self) -> str:
        """Returns all keys and values in one order."""
        return json.dumps(self._values, sort_keys=True)

    def renamed(self, aliases: Mapping[str, str]) -> "Keys":
        """Returns the same keys; a key that is not there is looked for under its alias."""
        return Keys(self.path, self._values, self._prefix, aliases, self._defaults)

    def including(self, values: Mapping[str, Any]) -> "Keys":
        """Returns these keys with other values, or ones that are not there."""
        return Keys(self.path, self._values | dict(values), self._prefix, self._aliases, self._defaults)

    def defaulting(self, defaults: Mapping[str, Any]) -> "Keys":
        """Returns the same keys; one that is not there says what it does in `defaults`."""
        return Keys(self.path, self._values, self._prefix, self._aliases, defaults)

    def under(self, section: str) -> "Keys":
        """Returns these keys and those of the object under one of them, which come first."""
        values = self.get(section)
        if not isinstance(values, dict):
            raise self.error(section, "an object")
        return self.including(values)

    def get(self, key: str, default: Any = None) -> Any:
        key = self._stored(key)
        return self._values.get(key, self._defaults.get(key, default))

    def error(self, key: str, expected: str) -> ModelConfigError:
        key = self._stored(key)
        found = f"{self._values[key]!r}" if key in self._values else "no such key"
        if key in self._defaults and key not in self._values:
            found = f"{found}, for which {self._defaults[key]!r} stands"
        if len(found) > MAX_FOUND:
            found = f"{found[:MAX_FOUND]}… ({len(found)} characters)"
        return ModelConfigError(f"{self.path}: {self._prefix}{key}: expected {expected}, found {found}")

    def expect(self, key: str, value: Any) -> None:
        """Raises ModelConfigError unless the key is absent or has this value, the only one that can be computed."""
        if self.get(key, value) != value:
            raise self.error(key, "none" if value is None else f"{value!r}, the only one supported")

    def integer(self, key: str, default: int | None = None, least: int = 1, most: int = MOST) -> int:
        value: Any = self.get(key)
        value = default if value is None else value
        if not is_integer(value, least):
            raise self.error(key, f"a whole number of at least {least}")
        if value > most:
            raise self.error(key, f"at most {most}")
        return int(value)

    def number(self, key: str, default: float | None = None, above: float = 0) -> float:
        value: Any = self.get(key)
        value = default if value is None else value
        if not _is_number(value, above):
            raise self.error(key, f"a number above {above}")
        return float(value)

    def numbers(self, key: str, count: int) -> list[float]:
        """Returns the list under a key, which is to have `count` numbers above 0."""
        values = self.get(key)
        if not isinstance(values, list) or len(values) != count or not all(_is_number(value) for value in values):
            raise self.error(key, f"a list of {count} numbers above 0")
        return [float(value) for value in values]

    def pair(self, key: str) -> tuple[int, int]:
        """Returns the two sizes in the list under a key."""
        values = self.get(key)
        if not isinstance(values, list) or len(values) != 2 or not all(is_integer(value, 1) for value in values):
            raise self.error(key, "a list of 2 whole numbers of at least 1")
        return values[0], values[1]

    def switch(self, key: bool | str, default: bool = False) -> bool:
        """Returns the boolean under a key, or the constant that is given in place of a key."""
        value = key if isinstance(key, bool) else self.get(key, default)
        if not isinstance(value, bool):
            raise self.error(str(key), "true or false")
        return value

    def _stored(self, key: str) -> str:
        alias = self._aliases.get(key, key)
        for values in (self._values, self._defaults):
            if key in values or alias in values:
                return key if key in values else alias
        return alias

    def section(self, *names: str) -> "Keys":
        """Returns the first object with anything in it under one of these keys, or an empty one if there is none."""
        for name in names:
            value = self.get(name)
            if value is not None and not isinstance(value, dict):
                raise self.error(name, "an object or null")
            if value:
                return Keys(self.path, value, f"{self._prefix}{name}.")
        return Keys(self.path, {})


def is_integer(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_number(value: Any, above: float = 0) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and above < value < math.inf
