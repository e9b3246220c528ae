"""The receipt of an answer: which model gave it, to which request, and what it took."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from penstock.router.engine.stream import Stream
from penstock.router.generation.cost import Cost
from penstock.router.generation.digests import digest, digest_of_ids
from penstock.router.generation.request_record import Generation, RequestRecord

VERSION = 1
_TOKENS = ("input", "computed", "cached", "replayed", "drafted", "accepted", "output")


def has_receipt(record: RequestRecord) -> bool:
    """Tells whether a request had answers of which there is a receipt: texts that were generated here."""
    return any(isinstance(stream, Stream) for stream in record.streams)


def receipt_of(
    record: RequestRecord, id: str, path: str, body: str, reasons: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns the receipt of a request whose answers have ended, as it stands in JSON: all numbers are whole, so that
    its canonical form (RFC 8785) is the same in every language. `id` is the request's, and `path` the one that was
    asked with `body`; the `reasons` say where its time went."""
    cost = Cost.of(record)
    generation = record.generations[-1]
    counts = "-".join("0" for spec in generation.specs for _ in range(spec.num_answers))
    asked = {"method": "POST", "path": path, "body": body, "sha256": digest(body.encode()),
             "answer": f"{generation.answer}.{counts}"}
    told = {
        "version": VERSION, "id": id,
        "time": datetime.fromtimestamp(record.at, UTC).isoformat(timespec="microseconds"),
        "request": asked, "model": _model(generation),
        "cache": record.cache or None,
        "answers": [_answer(stream) for stream in generation.streams if isinstance(stream, Stream)],
        "tokens": {name: getattr(cost, f"{name}_tokens") for name in _TOKENS},
        "total_us": _micros((record.ended_at or time.monotonic()) - record.received_at),
        "step_us": cost.step_us, "kv_token_ms": cost.kv_token_ms,
        "energy_uj": None if cost.energy_uj is None else int(cost.energy_uj),
        "reasons": [*reasons],
        "waits_us": {cause: _micros(seconds) for cause, seconds in cost.waits.items()},
    }
    return {name: value for name, value in told.items() if value is not None}


def _model(generation: Generation) -> dict[str, str]:
    """Returns the names of the model and of all that decides the bits of its answers."""
    facts, revision = generation.facts, generation.revision
    assert facts is not None
    return {"name": generation.model, **({} if revision is None else {"revision": revision}), "digest": facts.model,
            "dtype": facts.dtype, "kv_dtype": facts.kv_dtype, "numerics": facts.numerics,
            "implementation": facts.implementation}


def _answer(stream: Stream) -> dict[str, Any]:
    """Returns the digest of an answer's tokens and why it ended; and its seed as a text, since it may have 64 bits."""
    told: dict[str, Any] = {"finish_reason": stream.finish_reason, "tokens": stream.num_tokens,
                            "sha256": digest_of_ids(stream.token_ids)}
    sampling = stream.request.sampling
    return {**told, "seed": str(sampling.seed), "branch": sampling.branch} if sampling.do_sample else told


def _micros(seconds: float) -> int:
    return int(seconds * 1e6)
