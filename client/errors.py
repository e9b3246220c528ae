"""The errors that a call of a client raises.

    ClientError
    ├── Unreachable            nothing came of any server for too long
    └── Refused                a server has answered with an error
        ├── InvalidRequest       400, 404, 408, 413, 415, 422: the request breaks a rule
        ├── Unauthorized         401, 403: the key is missing or wrong
        ├── AnotherAnswer        409: no server would go on with this answer, but give another
        ├── GenerationFailed     424: it failed while it was computed
        ├── Overloaded           429: the server has as many requests as it takes, the key's budget is spent, or others
        │                         leave no time until the answer's deadline
        └── ServerFault          any other
"""

from http import HTTPStatus
from typing import Any

from pydantic_core import from_json


class ClientError(Exception):
    """The base of all errors of a client's calls."""


class Unreachable(ClientError):
    """Raised when nothing came of any server for `max_downtime`; its cause is the last failure."""


class Refused(ClientError):
    """The base of errors that a server answers with: `str(error)` is its sentence, `status` as HTTP has it."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class InvalidRequest(Refused):
    """Raised for a request that breaks a rule."""


class Unauthorized(Refused):
    """Raised for an API key that is missing or wrong."""


class AnotherAnswer(Refused):
    """Raised where an answer was begun, and all servers that can be reached would give another: they have another
    model, or other kernels or number formats."""


class GenerationFailed(Refused):
    """Raised for a request that failed while its answer was computed."""


class Overloaded(Refused):
    """Raised by a server that has as many requests as it takes, before the answer has begun."""


class ServerFault(Refused):
    """Raised by a server that has a fault, or is none of this kind, so that what it answers can't be read."""


class Gone(Exception):
    """Tells the client's own loop that the server, or its answer's connection, is gone: another may answer."""


class Differs(Gone):
    """Tells that a server is there, and would give another answer than the one that was begun."""

    def __init__(self, refusal: AnotherAnswer) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


GONE = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)
"""The statuses of a server that is away, or behind a proxy that finds none."""

_KINDS: dict[int, type[Refused]] = {
    **dict.fromkeys((400, 404, 408, 413, 415, 422), InvalidRequest), 401: Unauthorized, 403: Unauthorized,
    409: AnotherAnswer, 424: GenerationFailed, 429: Overloaded}
_STATUSES = {
    # TGI's `error_type`
    "healthcheck": 503, "overloaded": 429, "budget_spent": 429, "deadline": 429,
    "generation": 424, "another_answer": 409, "internal": 500,
    # OpenAI's `code`
    "service_unavailable": 503, "rate_limit_exceeded": 429, "insufficient_quota": 429,
    "deadline_too_near": 429, "generation_failed": 424, "internal_error": 500,
}
"""The status of an error in a stream, by its name in TGI's routes or OpenAI's; of any other it is that of a request
which breaks a rule."""
_SENTENCES = {"unhealthy": 503, "Model is overloaded": 429, "Request failed during generation": 424,
              "Internal server error": 500, "The answer would take about ": 429, "It is not known how long": 429}
"""The status of an error in a stream of OpenAI's routes where TGI's manner is kept, which has 422 for all, by how the
sentence begins."""


def error_of(message: str, status: int) -> Refused | Gone:
    """Returns the error for a server's sentence."""
    if status in GONE:
        return Gone(message)
    return _KINDS.get(status, ServerFault)(message, status)


def error_of_body(body: bytes, status: int) -> Refused | Gone:
    """Returns the error for a response whose status is not 200; the body is JSON, plain text or empty."""
    try:
        content = from_json(body)
    except ValueError:
        content = None
    told = _told(content)
    return error_of(told[0] if told else body.decode(errors="replace") or f"status {status}", status)


def error_of_event(content: Any) -> Refused | Gone | None:
    """Returns the error that an event of a stream tells; None if it tells none."""
    told = _told(content)
    return None if told is None else error_of(*told)


def _told(content: Any) -> tuple[str, int] | None:
    """Returns the sentence and the status of an error in TGI's or OpenAI's shape."""
    error = content.get("error") if isinstance(content, dict) else None
    if isinstance(error, dict):
        return str(error.get("message")), _status(error)
    if isinstance(error, str):
        return error, _STATUSES.get(content.get("error_type"), 422)
    return None


def _status(error: dict[str, Any]) -> int:
    """Returns the status of an error in OpenAI's shape; gateways write it in place of the code."""
    codes = [str(error.get(name)) for name in ("http_status_code", "code")]
    status = next((int(code) for code in codes if code.isdecimal()), None)
    if status == HTTPStatus.UNPROCESSABLE_ENTITY:
        message = str(error.get("message"))
        return next((known for sentence, known in _SENTENCES.items() if message.startswith(sentence)), status)
    if status is None:
        unknown = 400 if error.get("type") == "invalid_request_error" else 500
        return next((_STATUSES[code] for code in codes if code in _STATUSES), unknown)
    return status
