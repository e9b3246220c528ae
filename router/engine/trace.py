"""The memory of an answer whose request is traced, until spans are made of it in the end."""

import time
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Note:
    """Something that happened, `at` a time of `time.monotonic`."""

    name: str
    at: float
    facts: dict[str, int]


@dataclass(slots=True, eq=False)
class Trace:
    """The trace of one answer.

    `context` names the request's span to the shards: the id of its trace, 16 bytes, and its own, 8.
    """

    context: bytes
    notes: list[Note] = field(default_factory=list)

    def note(self, name: str, **facts: int) -> None:
        """Notes that something happens now."""
        self.notes.append(Note(name, time.monotonic(), facts))
