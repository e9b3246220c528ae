"""The reply to a client of KServe's routes whose request failed, in the shape of Triton's."""

from http import HTTPStatus

import orjson
from aiohttp import web

from penstock.router.api.http.body import json_response
from penstock.router.api.http.failures import headers_of
from penstock.router.errors import RouterError

_PATHS = ("/v2/models/", "/v2/health/", "/v2/repository/")


def speaks_kserve(request: web.Request) -> bool:
    """Tells whether a request is told of failures in Triton's shape."""
    path = f"{request.path}/"
    return path.startswith(_PATHS) or path.strip("/") == "v2"


def kserve_response(error: RouterError) -> web.Response:
    """Returns an answer in Triton's shape, with 400 where other routes have 422."""
    is_invalid = error.status == HTTPStatus.UNPROCESSABLE_ENTITY
    return json_response(
        body(error), status=HTTPStatus.BAD_REQUEST if is_invalid else error.status, headers=headers_of(error))


def kserve_event(error: RouterError) -> bytes:
    """Returns the data of the event that tells of a failure."""
    return orjson.dumps(body(error))


def body(error: RouterError) -> dict[str, str]:
    """Returns the object that tells of a failure."""
    return {"error": sentence(error)}


def sentence(error: RouterError) -> str:
    """Returns the sentence of an error, which names its field."""
    is_named = error.param is None or error.param in error.reason
    return error.reason if is_named else f"{error.param}: {error.reason}"
