"""The reply to a client of OpenAI's routes whose request failed: in OpenAI's shape, or in TGI's if the server was told
so."""

from http import HTTPStatus
from typing import Any

import orjson
from aiohttp import web

from penstock.router import request_id
from penstock.router.api.http.body import json_response
from penstock.router.api.http.failures import headers_of
from penstock.router.errors import GenerationError, RouterError
from penstock.router.generation.services import first_of

_PATHS = ("/v1/", "/v2/", "/embeddings/", "/score/", "/pooling/", "/classify/")
"""How the paths of OpenAI's routes begin, and of those in its manner; each path is looked at with a slash behind it."""
OTHER_PATHS = web.AppKey[frozenset[str]]("other_paths")
"""Paths that are not OpenAI's wherever they are, such as the one that Vertex AI names, usually below `/v1`."""
_IS_OPENAIS = web.RequestKey("is_openais", bool)
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def speak_openai(request: web.Request) -> None:
    """Notes that a request at another API's path gets an answer in OpenAI's shape."""
    request[_IS_OPENAIS] = True


def speaks_openai(request: web.Request) -> bool:
    """Tells whether a request is told of failures in OpenAI's shape: those for all paths below `/v1` are, and those for
    some others, but for those that the app has as others."""
    is_below = f"{request.path}/".startswith(_PATHS) and request.path.rstrip("/") not in request.app[OTHER_PATHS]
    return request.get(_IS_OPENAIS, is_below) and not first_of(request).limits.tgi_openai_routes


def openai_response(error: RouterError) -> web.Response:
    """Returns an answer in OpenAI's shape."""
    status, body = told(error)
    return json_response(body, status=status, headers=headers_of(error))


def told(error: RouterError, is_tgi: bool = False) -> tuple[int, dict[str, Any]]:
    """Returns the status and the body by which a client is told of a failure, with `is_tgi` as TGI tells it. OpenAI has
    400 where TGI has 422."""
    if is_tgi:
        return error.status, error.body()
    is_invalid = error.status == HTTPStatus.UNPROCESSABLE_ENTITY
    return (HTTPStatus.BAD_REQUEST if is_invalid else error.status), _body(error)


def openai_event(error: RouterError) -> bytes:
    """Returns the data of the event that tells of a failure, which also says of which request."""
    return orjson.dumps({**_body(error), "request_id": request_id.current()})


def tgi_event(error: RouterError) -> bytes:
    """Returns the data of that event as TGI has it, where the status is the same for all failures."""
    return orjson.dumps({"error": {"message": str(error), "http_status_code": HTTPStatus.UNPROCESSABLE_ENTITY}})


def _body(error: RouterError) -> dict[str, Any]:
    is_ours = error.status >= HTTPStatus.INTERNAL_SERVER_ERROR or isinstance(error, GenerationError)
    kind = "server_error" if is_ours else _TYPES.get(error.status, "invalid_request_error")
    return {"error": {"message": error.reason, "type": kind, "param": error.param, "code": error.code}}
