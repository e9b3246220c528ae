"""The reply to a client whose call failed: a gRPC code, with the message and the error type that HTTP has."""

import grpc

from penstock.router.errors import RouterError

_MAX_DETAILS = 2000
"""The most bytes of a message: escaped they may be three times as many, and clients take 8 KB of metadata."""


_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    405: grpc.StatusCode.UNIMPLEMENTED,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    415: grpc.StatusCode.INVALID_ARGUMENT,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    # Not ABORTED, which asks clients to try again: this request has just ended three groups, or the engine failed.
    424: grpc.StatusCode.INTERNAL,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    499: grpc.StatusCode.CANCELLED,
    503: grpc.StatusCode.UNAVAILABLE,
}
"""The gRPC code for each status of HTTP."""


def code_of(error: RouterError) -> grpc.StatusCode:
    """Returns the gRPC code for an error; INTERNAL for what is not in the table."""
    return _CODES.get(error.status, grpc.StatusCode.INTERNAL)


def details_of(error: RouterError) -> str:
    """Returns the error's message, cut if it is too long to be sent."""
    message = str(error).encode()
    return message.decode() if len(message) <= _MAX_DETAILS else message[:_MAX_DETAILS].decode(errors="ignore") + "…"
