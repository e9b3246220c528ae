"""The folder that the shards' sockets are in, and the files by which the shards meet."""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.system.arguments import InvalidArgument
from penstock.system.leftovers import ALIASES_FILE, ENGINE_SOCKET, METRICS_FOLDER

MAX_PATH_BYTES = 107
"""The longest path of a socket (unix(7))."""
PRIVATE = 0o700


class SocketFolder:
    """A folder that only this user may enter, and that one server uses at a time: `lock_fd` holds a lock on it.

    Shards inherit the lock, for those of a launcher that was killed still use their sockets until they have ended.
    """

    def __init__(self, path: Path, was_there: bool = False) -> None:
        self.path = path
        self.was_there = was_there
        """Whether it is the user's, who keeps it when the server has ended."""
        self.lock_fd = -1
        self._num_meetings = 0

    def socket(self, rank: int) -> Path:
        return self.path / f"shard-{rank}"

    @property
    def engine_socket(self) -> Path:
        """Where the router's process listens for those that answer clients."""
        return self.path / ENGINE_SOCKET

    @property
    def metrics(self) -> Path:
        """The folder in which the router's processes count together."""
        return self.path / METRICS_FOLDER

    def meeting(self) -> Path:
        """Returns the path of a file where shards that start now can meet."""
        self._num_meetings += 1
        return self.path / f"meet-{self._num_meetings - 1}"

    def prepare(self) -> None:
        """Makes the folder if there is none, even where somebody has removed it under a running server, and removes
        what dead shards have left in it. Raises InvalidArgument if another server uses it or others may enter it, and
        OSError if it can't be made."""
        if self.lock_fd < 0 or not _is_at(self.path, self.lock_fd):
            self._lock()
        self._empty()

    def close(self) -> None:
        if self.lock_fd >= 0:
            if _is_at(self.path, self.lock_fd):
                self._empty()
                self.forget_routers()
            self._unlock()

    def forget_routers(self) -> None:
        """Removes the files that the processes of an ended router have left."""
        self.engine_socket.unlink(missing_ok=True)
        for file in self.path.glob(f"{ALIASES_FILE}*"):
            file.unlink(missing_ok=True)
        shutil.rmtree(self.metrics, ignore_errors=True)

    def _lock(self) -> None:
        self._unlock()
        with suppress(FileExistsError):
            self.path.mkdir(PRIVATE, parents=True)
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        except NotADirectoryError:
            raise _not_private(self.path) from None
        try:
            _check_private(self.path, fd)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise InvalidArgument(f"`shard_uds_path`: {self.path} is in use by another server") from None
        except BaseException:
            os.close(fd)
            raise
        self.lock_fd = fd

    def _unlock(self) -> None:
        """Leaves the folder, and what is in it, to others."""
        if self.lock_fd >= 0:
            os.close(self.lock_fd)
            self.lock_fd = -1

    def _empty(self) -> None:
        for pattern in ("shard-*", "meet-*"):
            for file in self.path.glob(pattern):
                file.unlink(missing_ok=True)


@contextmanager
def socket_folder(given: Path | None, num_shards: int) -> Iterator[SocketFolder]:
    """Yields the folder at `given`, or a temporary one; afterwards it is gone, unless it was there before.

    Raises InvalidArgument if it can't be used.
    """
    folder = _temporary() if given is None else _at(given)
    try:
        _prepare(folder, num_shards)
        yield folder
    finally:
        folder.close()
        if not folder.was_there:
            with suppress(OSError):
                folder.path.rmdir()


def _temporary() -> SocketFolder:
    try:
        return SocketFolder(Path(tempfile.mkdtemp(prefix="penstock-")))
    except OSError as error:
        raise InvalidArgument(
            f"`shard_uds_path`: the shards' sockets need a folder, and no temporary one can be made: {error.strerror}. "
            "Name one that can be written by `--shard-uds-path` or the variable TMPDIR, or give a container one by "
            "`--tmpfs /tmp`") from error


def _at(given: Path) -> SocketFolder:
    path = given.absolute()
    try:
        return SocketFolder(path, was_there=path.exists())
    except OSError as error:
        raise _unusable(path, error) from error


def _prepare(folder: SocketFolder, num_shards: int) -> None:
    try:
        _check_length(folder.socket(num_shards - 1))
        folder.prepare()
        folder.forget_routers()
    except OSError as error:
        raise _unusable(folder.path, error) from error


def _unusable(path: Path, error: OSError) -> InvalidArgument:
    return InvalidArgument(f"`shard_uds_path`: cannot use {path}: {error.strerror}")


def _check_length(longest: Path) -> None:
    if (length := len(os.fsencode(longest))) > MAX_PATH_BYTES:
        raise InvalidArgument(f"`shard_uds_path`: {length} bytes are too many for a socket's path: {longest}")


def _check_private(path: Path, fd: int) -> None:
    """Refuses the folder that is open as `fd`, whoever has put it at the path, if others may enter it."""
    found = os.fstat(fd)
    if stat.S_IMODE(found.st_mode) != PRIVATE or found.st_uid != os.getuid():
        raise _not_private(path)


def _not_private(path: Path) -> InvalidArgument:
    return InvalidArgument(f"`shard_uds_path`: {path} must be a folder of yours that nobody else may enter "
                           "(mode 0700), or not exist yet")


def _is_at(path: Path, fd: int) -> bool:
    """Tells whether an open folder is the one at this path."""
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except OSError:
        return False
