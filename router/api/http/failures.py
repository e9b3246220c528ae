"""The reply to a client whose request failed, by a status or by an event of a stream; the shape is TGI's here."""

import logging
from collections.abc import Mapping
from types import MappingProxyType

from aiohttp import hdrs, web

from penstock.router import request_id
from penstock.router.api.http.body import json_response
from penstock.router.errors import (
    NoRoute,
    RouterError,
    TooLarge,
    Unauthorized,
    Unreadable,
    WrongMethod,
)
from penstock.router.generation import request_record

log = logging.getLogger(__name__)
_NO_OTHERS: Mapping[str, str] = MappingProxyType({})


def to_router_error(error: Exception) -> RouterError:
    """Returns `error` if it is meant for the client. Any other is a fault of the server: it is logged, and not shown.
    Either is noted in the request's record."""
    if isinstance(error, RouterError):
        failure = error
    else:
        log.error("a handler failed, for request %s", request_id.current(), exc_info=error)
        failure = RouterError()
    request_record.current().failed(failure)
    return failure


def of_framework(request: web.Request, error: web.HTTPException) -> RouterError | None:
    """Returns the error for what aiohttp raises itself; None for what is no error, such as a redirection."""
    match error:
        case web.HTTPRequestEntityTooLarge():
            return TooLarge()
        case web.HTTPMethodNotAllowed():
            return WrongMethod(request.method, request.path, error.headers[hdrs.ALLOW])
        case web.HTTPNotFound():
            return NoRoute(request.method, request.path)
    return None


def headers_of(error: RouterError) -> dict[str, str]:
    """Returns the headers that belong to an error: those that its status asks for, and when to try again."""
    retry = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
    return {**error.headers, **retry}


def error_response(error: RouterError, types: Mapping[str, str] = _NO_OTHERS) -> web.Response:
    """Returns an answer with the error's status as TGI has it: JSON, plain text for a body that can't be read, nothing
    where the status says it all. `types` has other words for some types of errors."""
    headers = headers_of(error)
    match error:
        case Unreadable():
            return web.Response(status=error.status, text=str(error), headers=headers)
        case Unauthorized() | NoRoute() | WrongMethod():
            return web.Response(status=error.status, headers=headers)
    body = error.body()
    return json_response({**body, "error_type": types.get(error.error_type, error.error_type)}, status=error.status,
                         headers=headers)
