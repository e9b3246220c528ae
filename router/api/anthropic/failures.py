"""The reply to a client of Anthropic's routes whose request failed, in Anthropic's shape."""

from http import HTTPStatus
from typing import Any

import orjson
from aiohttp import web

from penstock.router import request_id
from penstock.router.api.http import counting
from penstock.router.api.http.body import json_response
from penstock.router.api.http.failures import headers_of
from penstock.router.errors import GenerationError, RouterError, TooLong

VERSION = "anthropic-version"
"""The header by which a client says that it speaks to Anthropic's API, at paths that others have, too."""
REQUEST_ID = "request-id"
"""The header by which Anthropic's clients know a request's id."""
OVERLOADED = 529
"""Anthropic's status for a server that can't answer now."""
_PATH = "/v1/messages"
_SHARED_PATH = "/v1/models"
_STATUSES: dict[int, int] = {
    HTTPStatus.UNPROCESSABLE_ENTITY: HTTPStatus.BAD_REQUEST, HTTPStatus.SERVICE_UNAVAILABLE: OVERLOADED}
"""By the status that other routes have, that of Anthropic's."""
_TYPES = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error", 408: "timeout_error",
    409: "conflict_error", 413: "request_too_large", 429: "rate_limit_error", OVERLOADED: "overloaded_error"}
"""The words for errors, by status; the client's other errors are of its request, the server's are its own."""


def speaks_anthropic(request: web.Request) -> bool:
    """Tells whether a request is told of failures in Anthropic's shape."""
    path = f"{request.path}/"
    return path.startswith(f"{_PATH}/") or (path.startswith(f"{_SHARED_PATH}/") and VERSION in request.headers)


async def tell_request_id(request: web.Request, response: web.StreamResponse) -> None:
    """Adds the request's id to an answer in Anthropic's shape, by the name that its clients look for."""
    if speaks_anthropic(request) and counting.REQUEST_ID in request:
        response.headers[REQUEST_ID] = request[counting.REQUEST_ID]


def anthropic_response(error: RouterError) -> web.Response:
    """Returns an answer in Anthropic's shape."""
    status = _STATUSES.get(error.status, error.status)
    headers = headers_of(error)
    return json_response(failure(error), status=status, headers=headers)


def anthropic_event(error: RouterError) -> bytes:
    """Returns the data of the event that tells of a failure."""
    return orjson.dumps(failure(error))


def failure(error: RouterError) -> dict[str, Any]:
    """Returns the body of an answer, and the data of an event, that tells of a failure."""
    return {"type": "error", "error": {"type": _type(error), "message": _message(error)},
            "request_id": request_id.current()}


def _type(error: RouterError) -> str:
    status = _STATUSES.get(error.status, error.status)
    is_ours = status >= HTTPStatus.INTERNAL_SERVER_ERROR or isinstance(error, GenerationError)
    return _TYPES.get(status, "api_error" if is_ours else "invalid_request_error")


def _message(error: RouterError) -> str:
    """Returns the sentence; for a prompt that is too long in Anthropic's words, by which Claude Code knows that it must
    shorten the conversation."""
    if isinstance(error, TooLong):
        return f"prompt is too long: {error.given} tokens > {error.most} maximum"
    is_named = error.param is None or error.param in error.reason
    return error.reason if is_named else f"{error.param}: {error.reason}"
