"""Reads files that others have written: nothing but regular files, which no reader waits for, and no more of them than
was said."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import BinaryIO

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
"""A pipe without a writer is opened at once, too, and no terminal becomes ours."""


@contextmanager
def open_regular(path: str | PathLike[str]) -> Iterator[BinaryIO]:
    """Opens a file for reading. Raises OSError, whose `strerror` is a sentence, for whatever can't be read: also for a
    directory, a pipe, a socket or a device, whose reader might wait for ever, and for a path that is none."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening some devices has effects
            raise OSError(errno.EINVAL, "it is no regular file", os.fspath(path))
        descriptor = os.open(path, _FLAGS)
    except ValueError as error:          # a character that no path has
        raise OSError(errno.EINVAL, "it is no path of a file", os.fspath(path)) from error
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # it was put there in the meantime
            raise OSError(errno.EINVAL, "it is no regular file", os.fspath(path))
        yield file


def read_regular(path: str | PathLike[str], most: int) -> bytes:
    """Returns the content of a file. Raises OSError as `open_regular` does, and for more than `most` bytes, of which no
    more are read."""
    with open_regular(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", os.fspath(path))
    return content


def size_of(file: BinaryIO) -> int:
    """Returns how many bytes an open file has."""
    return os.fstat(file.fileno()).st_size
