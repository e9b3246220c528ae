"""The folder that the shards' sockets are in, and the files by which the shards meet."""

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.router.config import InvalidArgument

MAX_PATH_BYTES = 107
"""The longest path of a socket (unix(7))."""
PRIVATE = 0o700


class SocketFolder:
    """A folder that only this user may enter, and that one server uses at a time: `lock_fd` holds a lock on it.

    Shards inherit the lock, for those of a launcher that was killed still use their sockets until they have ended.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock_fd = -1
        self._num_meetings = 0

    def socket(self, rank: int) -> Path:
        return self.path / f"shard-{rank}"

    def meeting(self) -> Path:
        """Returns the path of a file where shards that start now can meet."""
        self._num_meetings += 1
        return self.path / f"meet-{self._num_meetings - 1}"

    def prepare(self) -> None:
        """Makes the folder if there is none, even where somebody has removed it under a running server, and removes
        what dead shards have left in it. Raises InvalidArgument if another server uses it."""
        if self.lock_fd < 0 or not _is_at(self.path, self.lock_fd):
            self._lock()
        self._empty()

    def close(self) -> None:
        if self.lock_fd >= 0:
            if _is_at(self.path, self.lock_fd):
                self._empty()
            os.close(self.lock_fd)

    def _lock(self) -> None:
        if self.lock_fd >= 0:
            os.close(self.lock_fd)
        self.path.mkdir(PRIVATE, parents=True, exist_ok=True)
        self.lock_fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self.lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self.lock_fd)
            self.lock_fd = -1  # what is in the folder is the other server's
            raise InvalidArgument(f"`shard_uds_path`: {self.path} is in use by another server") from None

    def _empty(self) -> None:
        for pattern in ("shard-*", "meet-*"):
            for file in self.path.glob(pattern):
                file.unlink()


@contextmanager
def socket_folder(given: Path | None, num_shards: int) -> Iterator[SocketFolder]:
    """Yields the folder at `given`, or a temporary one; afterwards it is gone, unless it was there before.

    Raises InvalidArgument if it can't be used.
    """
    was_there = given is not None and given.exists()
    folder = SocketFolder(given.absolute() if given else Path(tempfile.mkdtemp(prefix="penstock-")))
    try:
        _prepare(folder, num_shards)
        yield folder
    finally:
        folder.close()
        if not was_there:
            with suppress(OSError):
                folder.path.rmdir()


def _prepare(folder: SocketFolder, num_shards: int) -> None:
    try:
        _check(folder, num_shards)
        folder.prepare()
    except OSError as error:
        raise InvalidArgument(f"`shard_uds_path`: cannot use {folder.path}: {error.strerror}") from error


def _check(folder: SocketFolder, num_shards: int) -> None:
    longest = folder.socket(num_shards - 1)
    if (length := len(os.fsencode(longest))) > MAX_PATH_BYTES:
        raise InvalidArgument(f"`shard_uds_path`: {length} bytes are too many for a socket's path: {longest}")
    if not folder.path.exists():
        return
    found = folder.path.stat()
    if not stat.S_ISDIR(found.st_mode) or stat.S_IMODE(found.st_mode) != PRIVATE or found.st_uid != os.getuid():
        raise InvalidArgument(f"`shard_uds_path`: {folder.path} must be a folder of yours that nobody else may enter "
                              "(mode 0700), or not exist yet")


def _is_at(path: Path, fd: int) -> bool:
    """Tells whether an open folder is the one at this path."""
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except FileNotFoundError:
        return False
