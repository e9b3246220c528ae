"""The keys that clients may bear."""

import hmac
import stat
from collections.abc import Sequence
from pathlib import Path

from penstock.router.config import InvalidArgument


class Keys:
    """Holds the keys that were given and those of a file, one a line, which can be read again while the server runs.

    Raises InvalidArgument for a file that can't be read or has no key, and for a line that can't be one.
    """

    def __init__(self, given: Sequence[str] = (), file: Path | None = None) -> None:
        self._given = given
        self._file = file
        self._keys: tuple[bytes, ...] = ()
        self.reload()

    def __bool__(self) -> bool:
        return bool(self._keys)

    @property
    def are_ascii(self) -> bool:
        """Whether gRPC can send all of them."""
        return all(key.isascii() for key in self._keys)

    def admit(self, key: str) -> bool:
        """Tells whether the key is one of these; how long it takes reveals nothing of them but their number."""
        bytes_of_key = _to_bytes(key)
        return sum(hmac.compare_digest(bytes_of_key, each) for each in self._keys) > 0

    def reload(self) -> int:
        """Reads the file again; returns how many keys there are now. After an InvalidArgument those from before
        hold."""
        keys = [*self._given, *(_read(self._file) if self._file else [])]
        self._keys = tuple(_to_bytes(key) for key in keys)
        return len(keys)


def _read(file: Path) -> list[str]:
    """Reads the keys of a file, in which empty lines and those that begin with `#` are none."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise InvalidArgument(f"`api_key_file`: {file} must be a regular file, for it is read several times")
        lines = [line.strip() for line in file.read_text().splitlines()]
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidArgument(f"`api_key_file`: cannot read {file}: {reason}") from error
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise InvalidArgument(f"`api_key_file`: there is no key in {file}")
    for key in keys:
        check_key("api_key_file", key)
    return keys


def check_key(name: str, key: str) -> None:
    """Raises InvalidArgument for a key that no header could carry."""
    if not key.isprintable() or not key.strip() or key.strip() != key:
        raise InvalidArgument(f"`{name}` must have printable characters, and no space at its ends")


def _to_bytes(text: str) -> bytes:
    """Returns a header's bytes as they came: aiohttp decodes values that are not UTF-8 with surrogates."""
    return text.encode("utf-8", "surrogateescape")
