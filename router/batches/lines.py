"""The lines of a batch's input, as OpenAI has them, `{"custom_id", "method", "url", "body"}`, one object a line."""

import re
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from penstock.router.api.http.body import parse_json
from penstock.router.api.whole_answers import EMBEDDINGS, ROUTES
from penstock.router.errors import Unreadable
from penstock.router.generation.identity import MAX_KEY
from penstock.router.limits import Limits

_MAX_SHOWN = 100
"""How many characters of a refused value the error repeats."""
_BLANKS = re.compile(rb"\s+")


class RawLine(NamedTuple):
    """A line as it was read: its place in the file, from 1 on, its bytes, and how many it has; those behind the most
    that a line may have are not kept."""

    number: int
    content: bytes
    length: int


@dataclass(frozen=True, slots=True)
class Line:
    """A request of a batch. `body` is an object whose fields nobody has looked at yet, and `api_key` the name of the
    key of the batch."""

    number: int
    custom_id: str
    url: str
    body: dict[str, Any]
    api_key: str | None = None


class LineError(ValueError):
    """Raised for a line that is no request; the sentence says in which line which field is wrong. `code` is OpenAI's
    word for the error, or one in its manner, and `param` the field."""

    def __init__(self, number: int, sentence: str, code: str, param: str | None = None) -> None:
        super().__init__(f"line {number}: {sentence}")
        self.number = number
        self.code = code
        self.param = param


async def raw_lines(parts: AsyncIterable[bytes], max_length: int) -> AsyncIterator[RawLine]:
    """Yields the lines of a file that comes in parts, but for those of nothing but blanks. Of a line at most
    `max_length` + 1 bytes are held, so that one that is longer counts as a line, whatever it has."""
    number, length, kept = 1, 0, bytearray()
    async for part in parts:
        begin = 0
        while (end := part.find(b"\n", begin)) >= 0:
            if not length and (passed := _end_of_blanks(part, begin, begin + max_length)):
                number, begin = number + part.count(b"\n", begin, passed), passed
                continue
            length += end - begin
            kept += part[begin:min(end, begin + max_length + 1 - len(kept))]
            if length > max_length or kept.strip():
                yield RawLine(number, bytes(kept), length)
            number, length, begin = number + 1, 0, end + 1
            kept.clear()
        length += len(part) - begin
        kept += part[begin:begin + max_length + 1 - len(kept)]
    if length > max_length or kept.strip():
        yield RawLine(number, bytes(kept), length)


def _end_of_blanks(part: bytes, begin: int, end: int) -> int:
    """Returns where the lines end that are nothing but blanks; 0 if there are none from `begin` on. They are passed
    over together: one by one a million of them would hold up the event loop."""
    found = _BLANKS.match(part, begin, end)
    return 0 if found is None else part.rfind(b"\n", begin, found.end()) + 1


def read_line(raw: RawLine, limits: Limits, endpoint: str | None = None) -> Line:
    """Returns the request that a line is, which must be for `endpoint` if one is given. Raises LineError.

    Whether the body has the route's fields is seen when it is answered: such a request fails alone.
    """
    number, content, length = raw
    if length > limits.payload_limit:
        raise LineError(number, f"it must have at most {limits.payload_limit} bytes. Given: {length}", "line_too_long")
    try:
        found = parse_json(content, limits)
    except Unreadable as error:
        raise LineError(number, f"it can't be read: {str(error).partition(': ')[2]}", "invalid_json_line") from error
    if not isinstance(found, dict):
        raise LineError(number, f"it must be a JSON object. Given: {_show(found)}", "invalid_json_line")
    line = Line(number, _text(number, found, "custom_id"), _text(number, found, "url"), _body(number, found))
    if not 0 < len(line.custom_id) <= MAX_KEY:
        raise LineError(number, f"`custom_id` must have 1 to {MAX_KEY} characters. Given: {len(line.custom_id)}",
                        "invalid_custom_id", "custom_id")
    if "\0" in line.custom_id:  # which PostgreSQL does not keep
        raise LineError(number, "`custom_id` must not have the character NUL", "invalid_custom_id", "custom_id")
    if (method := _text(number, found, "method")) != "POST":
        raise LineError(number, f"`method` must be POST. Given: {_show(method)}", "invalid_method", "method")
    if line.url not in ROUTES:
        raise LineError(number, f"`url` must be one of {', '.join(ROUTES)}. Given: {_show(line.url)}", "invalid_url",
                        "url")
    if endpoint is not None and line.url != endpoint:
        raise LineError(number, f"`url` must be the batch's endpoint, {endpoint}. Given: {_show(line.url)}",
                        "mismatched_url", "url")
    return line


def checked_line(raw: RawLine) -> Line:
    """Returns the request that a line is which `read_line` has found to be one, by whatever limits there were."""
    found = orjson.loads(raw.content)
    return Line(raw.number, found["custom_id"], found["url"], found["body"])


def most_sequences(url: str, body: Mapping[str, Any]) -> int:
    """Returns how many sequences a request takes at the most, for its prompts and the answers or beams of each, or for
    its texts; 1 if it names what is refused."""
    prompt = body.get("input" if url == EMBEDDINGS else "prompt")
    prompts = prompt if isinstance(prompt, list) and not all(isinstance(each, int) for each in prompt) else [prompt]
    numbers = (body.get("n"), body.get("best_of"))
    return len(prompts) * max([1, *(each for each in numbers if isinstance(each, int))])


def repeated(number: int, custom_id: str, first: int) -> LineError:
    """Returns the error of a line whose `custom_id` the line of the number `first` has, too."""
    return LineError(number, f"`custom_id` must be another one in each line. Given: {_show(custom_id)}, as in line "
                     f"{first}", "duplicate_custom_id", "custom_id")


def _text(number: int, found: dict[str, Any], field: str) -> str:
    value = found.get(field)
    if value is None:
        raise LineError(number, f"missing field `{field}`", "missing_required_parameter", field)
    if not isinstance(value, str):
        raise LineError(number, f"`{field}` must be a string. Given: {_show(value)}", "invalid_type", field)
    return value


def _body(number: int, found: dict[str, Any]) -> dict[str, Any]:
    body = found.get("body")
    if body is None:
        raise LineError(number, "missing field `body`", "missing_required_parameter", "body")
    if not isinstance(body, dict):
        raise LineError(number, f"`body` must be an object. Given: {_show(body)}", "invalid_type", "body")
    if body.get("stream"):
        raise LineError(number, f"`body.stream` must be false or absent, for a batch has whole answers. "
                        f"Given: {_show(body['stream'])}", "invalid_value", "body.stream")
    return body


def _show(value: object) -> str:
    match value:
        case str():
            return f"`{value[:_MAX_SHOWN]}`"
        case bool() | int() | float():
            return str(value).lower()[:_MAX_SHOWN]
        case list():
            return "a list"
        case dict():
            return "an object"
    return "null"
