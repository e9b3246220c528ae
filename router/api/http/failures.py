"""What a client is told of a failure, whether by a status or by an event of a stream."""

import logging

from penstock.router.errors import RouterError

log = logging.getLogger(__name__)


def to_router_error(error: Exception) -> RouterError:
    """Returns `error` if it is meant for the client. Any other is a fault of the server: it is logged, and not
    shown."""
    if isinstance(error, RouterError):
        return error
    log.error("a handler failed", exc_info=error)
    return RouterError()
