"""The form of records: all that tells of a request, or is needed to compute it again."""

from collections.abc import Sequence
from dataclasses import MISSING, asdict, fields
from datetime import UTC, datetime
from typing import Any, Literal

import orjson

from penstock.contract.side_inputs import SideInput
from penstock.router.engine.pooled_stream import PooledStream
from penstock.router.generation.cost import Cost
from penstock.router.generation.digests import digest, digest_of_ids
from penstock.router.generation.request_record import AnySpec, AnyStream, Generation, RequestRecord
from penstock.router.generation.spec import GenerationSpec
from penstock.router.journal.entry import Entry, Written
from penstock.router.journal.redaction import Redaction

Content = Literal["hashes", "texts", "none"]
VERSION = 1
_TOLD_ELSEWHERE = ("inputs", "parameters", "adapter", "names", "num_answers")


class Form:
    """Makes records of entries. They have texts and tokens, or only digests of them, or neither, as `content` says."""

    def __init__(self, content: Content = "hashes", redaction: Redaction | None = None) -> None:
        self.content: Content = content
        self._redaction = redaction or Redaction()

    def written(self, entry: Entry) -> Written:
        """Returns the record of an entry."""
        record = entry.record
        line = orjson.dumps(
            {name: value for name, value in self._fields(entry).items() if value is not None}, default=_plain,
            option=orjson.OPT_NON_STR_KEYS)
        return Written(entry.id, record.at, record.route, _served(record), record.key, entry.status, line)

    def _fields(self, entry: Entry) -> dict[str, Any]:
        record, has_texts = entry.record, self.content == "texts"
        error = record.error
        body = self._redaction.of(_parsed(record.body)) if has_texts and record.body is not None else None
        return {
            "version": VERSION, "id": entry.id,
            "time": datetime.fromtimestamp(record.at, UTC).isoformat(timespec="microseconds"),
            "route": record.route, "path": self._redaction.of(entry.path) if has_texts else None,
            "operation": record.operation if record.generations else None,
            "model": _served(record), "requested_model": self._redaction.of(record.model), "key": record.key,
            "status": entry.status, "error": None if error is None else {
                "type": error.error_type, **({"message": self._redaction.of(str(error))} if has_texts else {})},
            "cache": record.cache or None, "trace": record.context.hex() or None, "body": body,
            "findings": [{"answer": index, "check": check,
                          **({"finding": self._redaction.of(finding)} if has_texts else {})}
                         for index, check, finding in record.findings] or None,
            "attempts": [{"source": each.source, "outcome": each.outcome,
                          "seconds": round(each.ended_at - each.began_at, 6)} for each in record.attempts] or None,
            "steps": [{"pipeline": each.pipeline, "step": each.name, "kind": each.kind,
                       "seconds": round(each.ended_at - each.began_at, 6),
                       **({} if each.error is None else {"error": each.error.error_type})}
                      for each in record.steps] or None,
            "generations": [self._generation(each) for each in record.generations],
            **(_cost(record) if record.streams else {}),
            "seconds": _seconds(entry),
        }

    def _generation(self, generation: Generation) -> dict[str, Any]:
        prompts, index = [], 0
        for spec in generation.specs:
            streams = generation.streams[index:index + spec.num_answers]
            index += spec.num_answers
            prompts.append({"parameters": self._parameters(spec), **self._input(spec, streams),
                            "answers": [self._answer(stream) for stream in streams]})
        adapter = generation.specs[0].adapter if generation.specs else None
        facts = generation.facts
        names = {"answer": generation.answer, "adapter": self._redaction.of(adapter),
                 **({"model_digest": facts.model, "numerics": facts.numerics} if facts else {})}
        return {**{name: value for name, value in names.items() if value}, "stream": generation.is_stream,
                "prompts": prompts}

    def _parameters(self, spec: AnySpec) -> dict[str, Any]:
        """Returns all that was asked of a prompt, but for values that change nothing."""
        asked = {}
        for each in fields(spec):  # type: ignore[arg-type]  # both kinds are dataclasses
            default = each.default_factory() if each.default_factory is not MISSING else each.default
            value = getattr(spec, each.name)
            if each.name not in _TOLD_ELSEWHERE and value != default:
                asked[each.name] = value
        if isinstance(spec, GenerationSpec):
            asked |= spec.parameters.model_dump(exclude_defaults=True, exclude={"adapter_id"})
        plain = orjson.loads(orjson.dumps(asked, default=_plain, option=orjson.OPT_NON_STR_KEYS))
        if self.content == "texts":
            redacted: dict[str, Any] = self._redaction.of(plain)
            return redacted
        return {name: value if isinstance(value, bool | int | float) else {"sha256": digest(orjson.dumps(value))}
                for name, value in plain.items()}

    def _input(self, spec: AnySpec, streams: Sequence[AnyStream]) -> dict[str, Any]:
        told: dict[str, Any] = {}
        inputs = getattr(spec, "inputs", None)
        ids = streams[0].request.input_ids if streams else ()
        if streams:
            told |= {"input_tokens": len(ids), "cached_tokens": streams[0].hit_tokens}
        if self.content == "none":
            return told
        if ids:
            told["input_sha256"] = digest_of_ids(ids)
        if self.content == "hashes":
            return told
        is_text = isinstance(inputs, str) or (isinstance(inputs, tuple) and bool(inputs) and isinstance(inputs[0], str))
        text = inputs if isinstance(inputs, str) else [*inputs] if is_text and inputs else None
        redacted = self._redaction.of(text)
        if text is not None:
            told["input"] = redacted
        if redacted == text and (is_text or not self._redaction):
            told["input_ids"] = [*(ids or inputs or ())]
        return told

    def _answer(self, stream: AnyStream) -> dict[str, Any]:
        sampling = stream.request.sampling
        told: dict[str, Any] = {"finish_reason": stream.finish_reason}
        if isinstance(stream, PooledStream):
            return {**told, **({} if self.content == "none" else {"output_sha256": digest(
                stream.indices.tobytes() + stream.values.tobytes())})}
        told["output_tokens"] = stream.num_tokens
        if sampling.do_sample:
            told |= {"seed": sampling.seed, "branch": sampling.branch}
        if self.content == "none":
            return told
        told["output_sha256"] = digest_of_ids(stream.token_ids)
        if self.content == "texts":
            text = stream.text
            told["output"] = self._redaction.of(text)
            if told["output"] == text:
                told["output_ids"] = stream.token_ids
        return told


def _cost(record: RequestRecord) -> dict[str, Any]:
    """Returns the tokens and the time of a request, and what it waited for; times are in seconds."""
    usage = asdict(Cost.of(record))
    waits = usage.pop("waits")
    return {"usage": {name: round(value, 6) for name, value in usage.items() if value is not None},
            "waits": {cause: round(seconds, 6) for cause, seconds in waits.items()}}


def _served(record: RequestRecord) -> str | None:
    """Returns the model that was asked, here or elsewhere, if the request got so far."""
    generations = record.generations[-1:] if record.steps else record.generations
    return next(iter([*(each.model for each in generations), *(each.model for each in record.attempts)]), None)


def _parsed(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def _plain(value: Any) -> Any:
    """Returns a value that orjson does not know as one that it knows."""
    if isinstance(value, SideInput):
        return {"kind": value.name, "identity": value.identity.hex()}
    return sorted(value) if isinstance(value, set | frozenset) else str(value)


def _seconds(entry: Entry) -> dict[str, float]:
    """Returns where the time went, as far as the request got; of several answers from the first to the last."""
    record, streams = entry.record, entry.record.streams
    times = {"total": entry.ended_at - record.received_at}
    if streams:
        submitted_at = min(stream.submitted_at for stream in streams)
        started_at = min((stream.started_at for stream in streams if stream.started_at is not None), default=None)
        first_at = min((stream.first_token_at for stream in streams if stream.first_token_at is not None), default=None)
        times["validation"] = submitted_at - record.generations[0].received_at
        times["queue"] = (started_at or entry.ended_at) - submitted_at
        if started_at is not None:
            times["inference"] = max(stream.finished_at or entry.ended_at for stream in streams) - started_at
        if first_at is not None:
            times["to_first_token"] = first_at - record.received_at
    return {name: round(seconds, 6) for name, seconds in times.items()}
