"""The keys that clients may bear."""

import hashlib
import hmac
import re
import stat
from collections.abc import Sequence
from pathlib import Path

from penstock.router.grants import NOTHING, Grants, completed, is_grant, read_grants
from penstock.system.arguments import InvalidArgument

_NAME = re.compile(r"#\s*name:\s*([\w.@/-]{1,64})")
"""A comment that names the key behind it."""
_Entry = tuple[str, str, Grants]
"""A key's name, the key, and what is granted to it."""


class Keys:
    """Holds the keys that were given and those of a file, one a line, which can be read again while the server runs.

    Each has a name, by which the log tells them apart: the one that a line `# name: NAME` among the comments right
    before it in the file gives it, or else `key-1`, `key-2` and so on, or `file-1`, by its place among those given, or
    those of the file. Other such lines grant something to those who bear the key (`grants.py`). Raises
    InvalidArgument for a file that can't be read or has no key, and for a line that can't be one.
    """

    def __init__(self, given: Sequence[str] = (), file: Path | None = None) -> None:
        self._given = given
        self._file = file
        self._keys: dict[bytes, str] = {}
        self._grants: dict[str, Grants] = {}
        self.reload()

    def __bool__(self) -> bool:
        return bool(self._keys)

    @property
    def are_ascii(self) -> bool:
        """Whether gRPC can send all of them."""
        return all(key.isascii() for key in self._keys)

    @property
    def names(self) -> set[str]:
        """The names of all of them."""
        return {*self._keys.values()}

    def name_of(self, key: str) -> str | None:
        """Returns the name of a key that is one of these; how long it takes reveals nothing of them but their
        number."""
        bytes_of_key = _to_bytes(key)
        names = [name for each, name in self._keys.items() if hmac.compare_digest(bytes_of_key, each)]
        return names[0] if names else None

    def grants_of(self, name: str) -> Grants:
        """Returns the grants of the keys of this name."""
        return self._grants.get(name, NOTHING)

    def reload(self) -> int:
        """Reads the file again; returns how many keys there are now. After an InvalidArgument those from before
        hold."""
        entries = [(f"key-{number}", key, NOTHING) for number, key in enumerate(self._given, 1)]
        entries += _read(self._file) if self._file else []
        self._grants = _by_name(entries)
        self._keys = {_to_bytes(key): name for name, key, _ in reversed(entries)}
        return len(self._keys)


def _by_name(entries: Sequence[_Entry]) -> dict[str, Grants]:
    """Returns the grants of the keys of each name, which stand before the first of them. Raises InvalidArgument if
    other ones stand before another."""
    found: dict[str, Grants] = {}
    for name, _, grants in entries:
        if found.setdefault(name, grants) != grants != NOTHING:
            raise InvalidArgument(f"`api_key_file`: the keys of the name {name} are those of one tenant: what is "
                                  "granted to it must stand before the first of them")
    return completed(found)


def _read(file: Path) -> list[_Entry]:
    """Reads the keys of a file, each with its name; empty lines and those that begin with `#` are none."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise InvalidArgument(f"`api_key_file`: {file} must be a regular file, for it is read several times")
        lines = [line.strip() for line in file.read_text().splitlines()]
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidArgument(f"`api_key_file`: cannot read {file}: {reason}") from error
    entries: list[_Entry] = []
    comments: list[tuple[int, str]] = []
    for number, line in enumerate([*lines, ""], 1):
        if line.startswith("#"):
            comments.append((number, line))
            continue
        if line:
            check_key("api_key_file", line)
            names = [name[1] for _, comment in comments if (name := _NAME.fullmatch(comment))]
            grants = read_grants(comments)
            granted = next((each for each in comments if is_grant(each[1])), None)
            if granted and not names:
                raise InvalidArgument(f"`api_key_file`: line {granted[0]}: `{granted[1]:.100}` takes a line "
                                      "`# name: NAME` beside it, by which the tenant is known")
            entries.append((names[-1] if names else f"file-{len(entries) + 1}", line, grants))
        elif lost := next((each for each in comments if is_grant(each[1])), None):
            raise InvalidArgument(f"`api_key_file`: line {lost[0]}: `{lost[1]:.100}` stands before no key")
        comments.clear()
    if not entries:
        raise InvalidArgument(f"`api_key_file`: there is no key in {file}")
    return entries


def check_key(name: str, key: str) -> None:
    """Raises InvalidArgument for a key that no header could carry."""
    if not key.isprintable() or not key.strip() or key.strip() != key:
        raise InvalidArgument(f"`{name}` must have printable characters, and no space at its ends")


def owner_of(key: str) -> bytes:
    """Returns a digest of a key, which names its owner to none but those who know the key."""
    return hashlib.sha256(_to_bytes(key)).digest()


def _to_bytes(text: str) -> bytes:
    """Returns a header's bytes as they came: aiohttp decodes values that are not UTF-8 with surrogates."""
    return text.encode("utf-8", "surrogateescape")
