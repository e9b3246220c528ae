"""Remembers the requests that killed their group, so that none of them does it again at once."""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable

from penstock.router.errors import GenerationError

MAX_REMEMBERED = 1024


class PoisonMemory:
    """Knows requests by a digest of what was asked, for `seconds` each; with 0 it remembers none.

    `now` returns the time in seconds. At most `MAX_REMEMBERED` are known, the latest. `tell` gets each digest that is
    remembered here, for other processes to note.
    """

    def __init__(
        self, seconds: float, now: Callable[[], float] = time.monotonic,
        tell: Callable[[bytes], None] = lambda digest: None,
    ) -> None:
        self._seconds = seconds
        self._tell = tell
        self._now = now
        self._ends: OrderedDict[bytes, float] = OrderedDict()
        """By digest, when the request is forgotten; the earliest comes first."""

    def remember(self, spec: object) -> None:
        """Notes a request that was given up."""
        digest = _digest(spec)
        self.note(digest)
        self._tell(digest)

    def note(self, digest: bytes) -> None:
        """Notes the digest of a request that was given up."""
        self._ends[digest] = self._now() + self._seconds
        self._ends.move_to_end(digest)
        if len(self._ends) > MAX_REMEMBERED:
            self._ends.popitem(last=False)

    def check(self, spec: object) -> None:
        """Raises GenerationError if the same was asked before and killed the group."""
        while self._ends and next(iter(self._ends.values())) <= self._now():
            self._ends.popitem(last=False)
        if self._ends and _digest(spec) in self._ends:
            raise GenerationError("the shards died whenever they ran this request, so it is refused for "
                                  f"{self._seconds:g} s after that")


def _digest(spec: object) -> bytes:
    """Returns a digest that tells requests apart. A seed that was drawn for one is no part of it."""
    return hashlib.sha256(repr(spec).encode("utf-8", "surrogatepass")).digest()
