"""Requests that were recorded with digests of their answers: as receipts, or in the log of requests."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

_ROUTE = re.compile(r"POST (/[^{}]*)")


class Unusable(ValueError):
    """Says why a record can't be asked again."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request, and digests of the tokens of its answers. `at` is when it came, `seconds` how long it took."""

    id: str
    path: str
    body: bytes
    answer: str
    """The name of its answers, by which they are asked for again."""
    digests: tuple[str, ...]
    at: float
    seconds: float
    model: str = ""
    """The digest of the model; empty where the record has none."""
    receipt: Mapping[str, Any] | None = None


def read(content: bytes) -> Iterator[Recorded | Unusable]:
    """Reads a receipt, an answer that has one, or lines of either or of the log of requests. Yields for each of them
    what was recorded, or why it can't be asked again."""
    for where, text in _parts(content):
        try:
            yield recorded(orjson.loads(text))
        except Unusable as error:
            yield Unusable(f"{where}: {error}")
        except (ValueError, KeyError, TypeError, AttributeError):
            yield Unusable(f"{where} is no receipt, no answer with one, and no record of a request")


def _parts(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yields the parts of a file that are JSON, each behind the words for its place: the whole, or its lines."""
    try:
        orjson.loads(content)
        yield "the file", content
    except ValueError:
        for number, line in enumerate(content.split(b"\n"), 1):
            if line.strip():
                yield f"line {number}", line


def recorded(record: Any) -> Recorded:
    """Reads a record that was parsed as JSON. Raises Unusable, or KeyError, TypeError or ValueError for others."""
    if isinstance(record, list) and len(record) == 1:
        [record] = record
    if "receipt" in record:
        record = record["receipt"]
    return _of_log(record) if "route" in record else _of_receipt(record)


def _of_receipt(receipt: Mapping[str, Any]) -> Recorded:
    asked = receipt["request"]
    if "body" not in asked:
        raise Unusable(f"the receipt {receipt['id']} has no body of its request, which was too long for gRPC's "
                       "metadata: receipts by HTTP have it")
    return Recorded(
        receipt["id"], asked["path"], asked["body"].encode(), asked["answer"],
        tuple(answer["sha256"] for answer in receipt["answers"]), _seconds(receipt["time"]),
        receipt["total_us"] / 1e6, receipt["model"]["digest"], receipt)


def _of_log(record: Mapping[str, Any]) -> Recorded:
    if record["status"] != 200:
        raise Unusable(f"the request {record['id']} was answered with {record['status']}")
    match = _ROUTE.fullmatch(record["route"])
    generations = record["generations"]
    if match is None or len(generations) != 1 or not all(
            "output_sha256" in answer for answer in _answers(generations)) or "answer" not in generations[0]:
        raise Unusable(f"the request {record['id']} has no text whose digest was recorded")
    if "body" not in record:
        raise Unusable(f"the request {record['id']} has no body: that takes --request-log-content texts")
    answers = _answers(generations)
    counts = "-".join("0" * len(answers))
    return Recorded(
        record["id"], match[1], orjson.dumps(record["body"]), f"{generations[0]['answer']}.{counts}",
        tuple(answer["output_sha256"] for answer in answers), _seconds(record["time"]), record["seconds"]["total"])


def _answers(generations: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [answer for each in generations for prompt in each["prompts"] for answer in prompt["answers"]]


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
