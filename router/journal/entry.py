"""A request that has ended, and its record as it is stored."""

import time
from dataclasses import dataclass, field

from penstock.router.generation.request_record import RequestRecord

_BYTES_PER_TOKEN = 8
"""How many bytes of a body take about as much memory as a token."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A request that was answered with `status`; `path` is given where there is no such route."""

    id: str
    record: RequestRecord
    status: int
    path: str | None = None
    ended_at: float = field(default_factory=time.monotonic)

    @property
    def num_tokens(self) -> int:
        """About how much memory it holds, in tokens."""
        body = len(self.record.body or b"") // _BYTES_PER_TOKEN
        return body + sum(len(stream.request.input_ids) + stream.num_tokens for stream in self.record.streams)


@dataclass(frozen=True, slots=True)
class Written:
    """A record as it is stored: a line of JSON, and those of its fields that tables have columns for. `at` is in
    seconds since 1970."""

    id: str
    at: float
    route: str
    model: str | None
    key: str | None
    status: int
    line: bytes
