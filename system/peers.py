"""Who is at the other end of a Unix socket, as the kernel tells it: also where the modes of files let others in."""

import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress

_CREDENTIALS = struct.Struct("3i")
"""Process, user and group."""


def user_of(link: socket.socket) -> int:
    """Returns the user who connected a Unix socket, or who listens at its other end."""
    _, user, _ = _CREDENTIALS.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(user)


def is_trusted(user: int) -> bool:
    """Returns whether a user may talk to this process: the one that it runs as, and root, who may do anything."""
    return user in (os.geteuid(), 0)


def cut_off_strangers(path: str) -> set[int]:
    """Ends the connections to this process, which listens at `path`, of users who are not trusted; returns the users.

    This is for libraries that keep their sockets to themselves, as gRPC does; so is `listeners`.
    """
    strangers = set()
    for link, user in _links(socket.socket.getsockname, path):
        if not is_trusted(user):
            strangers.add(user)
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
    return strangers


def listeners(path: str) -> set[int]:
    """Returns the users who listen at the other ends of this process's connections to `path`."""
    return {user for _, user in _links(socket.socket.getpeername, path)}


def _links(name_of: Callable[[socket.socket], object], path: str) -> Iterator[tuple[socket.socket, int]]:
    """Yields this process's connections by a Unix socket that is called `path`, and the users at their other ends."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):  # most are no sockets, and others may be closed meanwhile
            link = socket.socket(fileno=fd)
            try:
                is_listener = link.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                if link.family == socket.AF_UNIX and not is_listener and name_of(link) == path:
                    yield link, user_of(link)
            finally:
                link.detach()
