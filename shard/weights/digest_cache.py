"""Digests of weights files that were computed before, kept beside the files or, where that can't be written, in the
user's cache: a file of 16 GB is read once, and not at every start."""

import json
import logging
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from blake3 import blake3

from penstock.shard.weights.stored import Span
from penstock.system.user_cache import cache_folder

FOLDER = ".penstock-digests"
VERSION = 1                              # of what is kept, and of the digests themselves
SETTLED_NS = 2_000_000_000
"""For so long after a file was written a system may give another write of it the same time: no digest is kept then."""

log = logging.getLogger(__name__)


class Stamp(NamedTuple):
    """The system's marks of a file. Another content, or another file of this name, has another stamp."""

    inode: int
    num_bytes: int
    modified_ns: int
    changed_ns: int                      # which nobody can set back

    @classmethod
    def of(cls, path: Path) -> Self:
        """Raises OSError."""
        found = path.stat()
        return cls(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    def is_settled(self) -> bool:
        """Tells whether a write from now on would change it."""
        return time.time_ns() - max(self.modified_ns, self.changed_ns) > SETTLED_NS


def load(path: Path, stamp: Stamp) -> dict[Span, bytes]:
    """Returns the digests of parts of a file that are known; none where nothing is kept, or it is of another file or
    damaged."""
    for place in _places(path):
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            check, _, content = place.read_bytes().partition(b"\n")
            if check == _check(content):
                kept = json.loads(content)
                if kept["version"] == VERSION and tuple(kept["stamp"]) == stamp:
                    return {Span(offset, size): bytes.fromhex(digest) for offset, size, digest in kept["digests"]}
    return {}


def save(path: Path, stamp: Stamp, digests: Mapping[Span, bytes]) -> None:
    """Keeps digests of parts of a file, in the first place that can be written. Whoever reads meanwhile finds them
    whole, or those of before."""
    kept = {"version": VERSION, "stamp": stamp, "digests": [[*span, each.hex()] for span, each in digests.items()]}
    content = json.dumps(kept).encode()
    for place in _places(path):
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            _write(place, _check(content) + b"\n" + content)
        except OSError as error:
            log.debug("digests of %s are not kept in %s: %s", path, place.parent, error.strerror)
        else:
            return


def _places(path: Path) -> Iterator[Path]:
    yield path.parent / FOLDER / path.name
    if (cache := cache_folder()) is not None:
        yield cache / "digests" / blake3(os.fsencode(path.parent.absolute())).hexdigest()[:32] / path.name


def _write(place: Path, content: bytes) -> None:
    number, name = tempfile.mkstemp(dir=place.parent, prefix=f"{place.name}.", suffix=".part")
    try:
        with open(number, "wb") as file:
            file.write(content)
        os.chmod(name, 0o644)            # another user's server may read the model, too
        os.replace(name, place)
    except BaseException:
        os.unlink(name)
        raise


def _check(content: bytes) -> bytes:
    return blake3(content).hexdigest().encode()
