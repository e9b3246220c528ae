"""The id of a request, by which its client, the log, traces and metrics of proxies mean the same one: the client's own,
or a new one. Whatever runs for the request finds it by `current`."""

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

HEADER = "x-request-id"
"""The header, and in gRPC the key of the metadata."""
MAX_LENGTH = 128
_TAKEN = re.compile(rf"[A-Za-z0-9._~:/+=@|-]{{1,{MAX_LENGTH}}}")
"""The form of a client's id: no character that would end a field of a log, whatever the log's form is."""

_current: ContextVar[str | None] = ContextVar("request_id", default=None)


def current() -> str | None:
    """Returns the id of the request that this task answers; None outside of one."""
    return _current.get()


@contextmanager
def naming(given: str | None) -> Iterator[str]:
    """Gives the work of the block an id, which is yielded: the one that the client has `given`, if it is valid."""
    token = _current.set(given if given and _TAKEN.fullmatch(given) else f"req_{secrets.token_hex(16)}")
    try:
        yield _current.get() or ""
    finally:
        _current.reset(token)
