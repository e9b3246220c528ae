"""What a client is told of a failure, whether by a status or by an event of a stream."""

import logging
from typing import Any

from aiohttp import web

from penstock.router import request_id
from penstock.router.api.http.body import json_response
from penstock.router.errors import RouterError
from penstock.router.records import request_record

log = logging.getLogger(__name__)


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


def error_response(error: RouterError, body: dict[str, Any] | None = None) -> web.Response:
    """Returns an answer with the error's status and `body`, or TGI's body for it, and when to try again."""
    headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
    return json_response(error.body() if body is None else body, status=error.status, headers=headers)
