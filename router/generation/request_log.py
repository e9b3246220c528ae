"""The line that the log has of each request when it has ended: what it was, what came of it, and where its time went.
There is no text of prompts or answers in it, and no key."""

import asyncio
import logging
import time
from collections.abc import Sequence

from penstock.router import request_id
from penstock.router.engine.pooled_stream import PooledStream
from penstock.router.errors import Dropped
from penstock.router.generation.cost import Cost
from penstock.router.generation.request_record import AnyStream, Journal, RequestRecord
from penstock.router.logs import FIELDS, REQUESTS

log = logging.getLogger(REQUESTS)

_MAX_LENGTH = 200
"""The most characters of what a client chose freely, such as the name of an adapter."""

_FAREWELL_SECONDS = 1.0
"""How long the last records wait when the server ends."""

Fields = dict[str, object]


_late: set[asyncio.Task[None]] = set()
"""Those that are written once it is known what their requests have used."""


def write(record: RequestRecord, status: int, path: str | None = None, journal: Journal | None = None) -> None:
    """Writes the line of a request that was answered with `status`, as HTTP has it, 499 if its client left; a moment
    later where another process has to tell what the request has used. `path` is what was asked for where there is no
    such route. The record goes to the `journal`, too, if there is one."""
    record.ended_at = time.monotonic()
    if any(stream.billing is not None for stream in record.tries):
        task = asyncio.create_task(_write_billed(record, status, path, journal))
        _late.add(task)
        task.add_done_callback(_late.discard)
    else:
        _write(record, status, path, journal)


async def finish() -> None:
    """Has all records written that wait to hear what their requests have used; after a while without hearing it."""
    if _late:
        await asyncio.wait(_late, timeout=_FAREWELL_SECONDS)
    for task in [*_late]:
        task.cancel()
    await asyncio.gather(*_late, return_exceptions=True)


async def _write_billed(record: RequestRecord, status: int, path: str | None, journal: Journal | None) -> None:
    try:
        await record.billed()
    finally:
        _write(record, status, path, journal)


def _write(record: RequestRecord, status: int, path: str | None, journal: Journal | None) -> None:
    if journal is not None:
        journal.write(record, status, path)
    if log.isEnabledFor(logging.INFO):
        # Made here rather than by `log.info`, which would look for the line of code that calls it.
        line = logging.LogRecord(REQUESTS, logging.INFO, "", 0, "%s %d", (record.route, status), None)
        fields = _fields(record, status, path)
        line.__dict__[FIELDS] = {name: value for name, value in fields.items() if value is not None}
        log.handle(line)


def status_of(record: RequestRecord, status: int) -> int:
    """Returns the status that counts: a stream that was left before its end began with another."""
    return Dropped.status if isinstance(record.error, Dropped) else status


def _fields(record: RequestRecord, status: int, path: str | None) -> Fields:
    """Returns the fields of a request's line, by TGI's names where it has them; None stands for unknown values."""
    asked: Fields = {
        "request_id": request_id.current(), "route": record.route, "path": _cut(path), "status": status,
        "key": _cut(record.key), "error": record.error.error_type if record.error else None}
    total = _seconds((record.ended_at or time.monotonic()) - record.received_at)
    if record.attempts:
        return {**asked, **_sources(record), "total_time": total}
    if not record.generations:
        return {**asked, "total_time": total}
    generation, streams, cost = record.generations[0], record.streams, Cost.of(record)
    return {
        **asked,
        "adapter": _cut(generation.specs[0].adapter),
        "stream": generation.is_stream,
        "answers": sum([spec.num_answers for each in record.generations for spec in each.specs]),
        "input_tokens": cost.input_tokens if streams else None,
        "cached_tokens": cost.cached_tokens if streams else None,
        "replayed_tokens": cost.replayed_tokens or None,
        "output_tokens": cost.output_tokens,
        "finish_reason": ",".join([stream.finish_reason for stream in streams if stream.finish_reason]) or None,
        "total_time": total,
        "step_time": _seconds(cost.step_seconds) if streams else None,
        "energy_uj": int(cost.energy_uj) if streams and cost.energy_uj is not None else None,
        "waits": ",".join([f"{cause}:{seconds:.6f}" for cause, seconds in cost.waits.items()]) or None,
        **(_times(record, streams) if streams else {}),
    }


def _sources(record: RequestRecord) -> Fields:
    """Returns the model, its server elsewhere that was asked last, and the outcomes of questions to those before it."""
    *failed, last = record.attempts
    return {"model": last.model, "source": last.source, "outcome": last.outcome.value,
            "failed_sources": ", ".join(f"{each.source} {each.outcome}" for each in failed) or None}


def _cut(text: str | None) -> str | None:
    """Returns a text that is not too long."""
    return text[:_MAX_LENGTH] if text else text


def _seconds(time: float) -> float:
    """Returns a time to the microsecond, at a tenth of what `round` takes."""
    return int(time * 1e6) / 1e6


def _times(record: RequestRecord, streams: Sequence[AnyStream]) -> Fields:
    """Returns where the time went, in seconds to the microsecond, as far as the request got: of several answers from
    the first that began to the last that ended."""
    now = record.ended_at or time.monotonic()
    submitted_at = min([stream.submitted_at for stream in streams])
    started_at = min([stream.started_at for stream in streams if stream.started_at is not None], default=None)
    first_at = min([stream.first_token_at for stream in streams if stream.first_token_at is not None], default=None)
    times: Fields = {"validation_time": _seconds(submitted_at - record.generations[0].received_at),
                     "queue_time": _seconds((started_at or now) - submitted_at)}
    if started_at is not None:
        inference = max([stream.finished_at or now for stream in streams]) - started_at
        times["inference_time"] = _seconds(inference)
        if not isinstance(streams[0], PooledStream):
            times["time_per_token"] = _seconds(inference / max(1, sum([stream.num_tokens for stream in streams])))
    if first_at is not None:
        times["time_to_first_token"] = _seconds(first_at - record.received_at)
    return times
