"""The story of a request that has ended: where its time went, in numbers that take little memory."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from penstock.router.explaining.change import Change, changes_for
from penstock.router.generation.request_record import Generation, RequestRecord
from penstock.router.scheduling.usage import Usage

MAX_TEXT = 256
"""The most characters of a name that clients choose."""


@dataclass(slots=True)
class Story:
    """Tells of one request, and of its answers the one that ended last. Times are in seconds; those from `reading` to
    `sending` follow one another, and are all of its `total`. Nobody writes to it once it is told."""

    id: str
    answer_id: str | None
    owner: bytes | None
    """The digest of the key that its client bears, if it needs one."""
    at: float
    """When it came, in seconds since 1970."""
    route: str
    model: str | None
    status: int
    error: str | None
    cache: str
    waits: Mapping[str, float]
    """For how long it waited before the engine had it, by what for."""
    elsewhere: float
    """For how long servers elsewhere answered it."""
    steps: float
    """For how long steps of its pipeline ran before the last of its models was asked."""
    total: float
    reading: float
    """Up to the check of what was asked."""
    checking: float = 0.0
    redoing: float = 0.0
    """How long answers took that checks have refused."""
    waiting: float = 0.0
    """Up to its first step."""
    computing: float = 0.0
    sending: float = 0.0
    to_first_token: float | None = None
    usage: Usage = field(default_factory=Usage)
    num_answers: int = 0
    num_input: int = 0
    num_cached: int = 0
    num_output: int = 0
    changes: tuple[Change, ...] = ()
    """The settings that would have admitted it."""
    block_size: int = 1

    @classmethod
    def of(cls, record: RequestRecord, id: str, status: int) -> Self:
        """Tells of a request up to its end, or up to now."""
        ended_at = record.ended_at or time.monotonic()
        last = next((each for each in reversed(record.generations) if each.streams), None)
        began_at = ended_at if last is None else last.received_at
        story = cls(
            id=id, answer_id=_cut(record.answer_id), owner=record.owner, at=record.at, route=record.route,
            model=_cut(last.model if last else record.model), status=status,
            error=record.error.error_type if record.error else None, cache=record.cache, waits=record.waits,
            elsewhere=sum([each.ended_at - each.began_at for each in record.attempts]),
            steps=sum([each.ended_at - each.began_at for each in record.steps if each.ended_at <= began_at]),
            total=ended_at - record.received_at, reading=began_at - record.received_at)
        if last is not None:
            story._add_answer(record, last, ended_at)
        return story

    def _add_answer(self, record: RequestRecord, generation: Generation, ended_at: float) -> None:
        """Adds the times and numbers of the answer that ended last."""
        streams = generation.streams
        stream = streams[0] if len(streams) == 1 else max(streams, key=lambda each: each.finished_at or ended_at)
        checked_at = generation.checked_at or stream.submitted_at
        submitted_at = max(stream.submitted_at, checked_at)
        finished_at = stream.finished_at or ended_at
        started_at = finished_at if stream.started_at is None else stream.started_at
        self.checking, self.redoing = checked_at - generation.received_at, submitted_at - checked_at
        self.waiting, self.computing = started_at - submitted_at, finished_at - started_at
        self.sending = ended_at - finished_at
        if stream.first_token_at is not None:
            self.to_first_token = stream.first_token_at - record.received_at
        self.usage, self.num_answers, self.num_input = stream.usage, len(streams), len(stream.request.input_ids)
        self.num_cached, self.num_output = stream.hit_tokens, stream.num_tokens
        facts, limits, arrival = generation.facts, generation.limits, stream.usage.arrival
        if facts is not None:
            self.block_size = facts.block_size
            if limits is not None and arrival is not None:
                self.changes = changes_for(stream.usage.waits, arrival, limits, facts)


def _cut(text: str | None) -> str | None:
    return text[:MAX_TEXT] if text else text
