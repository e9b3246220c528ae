"""Receipts, for requests that ask for one by a header or a field of their body."""

from dataclasses import replace
from typing import Any

import orjson
from aiohttp import web

from penstock.router import request_id
from penstock.router.api.http.body import READ_AHEAD, json_response, read_json
from penstock.router.api.http.route import Route
from penstock.router.errors import NoRoute, ValidationError
from penstock.router.explaining.explanation import reasons_of
from penstock.router.explaining.story import Story
from penstock.router.generation import request_record
from penstock.router.generation.receipt import has_receipt, receipt_of
from penstock.router.generation.services import first_of
from penstock.router.generation.signer import Signer

HEADER, FIELD = "penstock-receipt", "receipt"
EVENT = b"receipt"
"""The name of the event that has the receipt of a stream."""
PATHS = frozenset({
    "/", "/generate", "/generate_stream", "/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses"})
"""The routes whose answers have receipts."""
BODY = web.RequestKey("receipt_body", str)
"""The body of a request whose answer is to have a receipt, without the field that asks for it."""
SIGNATURE_BYTES = 200
"""The bytes that a signature adds to a receipt, at most."""
_ASKED = {"true": True, "false": False}


def receipting(route: Route) -> Route:
    """Returns a route whose answers have receipts for those who ask, or which refuses to give any."""
    if route.method != "POST" or not route.is_costly:
        return route
    if route.path not in PATHS:
        return replace(route, handler=_refusing(route))

    async def handle(request: web.Request) -> web.StreamResponse:
        content = await read_json(request)
        is_asked = _is_asked(request, content)
        request[READ_AHEAD] = content
        if not is_asked:
            return await route.handler(request)
        request[BODY] = orjson.dumps(content).decode()
        return await _with_receipt(request, await route.handler(request))

    return replace(route, handler=handle)


async def receipt_event(request: web.Request) -> bytes | None:
    """Returns the data of the event with the receipt of a stream whose answers have ended; None if none was asked
    for. The list of choices is for clients of OpenAI's, which look into that of every event."""
    if BODY not in request:
        return None
    return orjson.dumps({"choices": [], FIELD: await _receipt(request)})


def is_deferred(request: web.Request) -> bool:
    """Tells whether a receipt is asked for, and leaves it to whoever makes the answer later."""
    return request.pop(BODY, None) is not None


async def public_key(request: web.Request) -> web.StreamResponse:
    """Answers with the key by which the signatures of receipts are checked. Raises NoRoute if they have none."""
    signer = first_of(request).around.signer
    if signer is None:
        raise NoRoute(request.method, request.path)
    return json_response({"algorithm": "Ed25519", "key": signer.key_id, "public_key": signer.public_key})


def _refusing(route: Route) -> Any:
    async def handle(request: web.Request) -> web.StreamResponse:
        if HEADER in request.headers:
            raise ValidationError(f"`{HEADER}` is for routes that generate text: {', '.join(sorted(PATHS))}")
        return await route.handler(request)

    return handle


def _is_asked(request: web.Request, content: Any) -> bool:
    """Tells whether a receipt is asked for, and takes the field that asks out of the body. Raises ValidationError."""
    named = wish_of_header(request.headers.get(HEADER))
    asked = taken_out_of(content)
    return bool(named if asked is None else asked)


def wish_of_header(text: str | None) -> bool | None:
    """Returns whether a header of this value asks for a receipt; None if there is none. Raises ValidationError."""
    if text is not None and text not in _ASKED:
        raise ValidationError(f"`{HEADER}` must be true or false. Given: {text[:100]!r}")
    return None if text is None else _ASKED[text]


def taken_out_of(content: Any) -> bool | None:
    """Takes the field that asks for a receipt out of a body that was parsed as JSON; None if there is none. Raises
    ValidationError."""
    asked = content.pop(FIELD, None) if isinstance(content, dict) else None
    if asked is not None and not isinstance(asked, bool):
        raise ValidationError(f"`{FIELD}` must be true or false. Given: {str(asked)[:100]!r}")
    return asked


async def give_receipt(path: str, body: str, signer: Signer | None, most: int | None = None) -> dict[str, Any]:
    """Returns the receipt of the answers to the current request, which was to `path` and has ended; signed if there is
    a signer. If it would have more than `most` bytes it leaves the body out, but not its digest. Raises ValidationError
    for an answer that was not computed here."""
    record = request_record.current()
    if not has_receipt(record):
        raise ValidationError(f"`{FIELD}` is for texts that this server generates: not for those of other servers")
    await record.billed()
    id = request_id.current() or ""
    receipt = receipt_of(record, id, path, body, reasons_of(Story.of(record, id, 200)))
    if most is not None and len(orjson.dumps(receipt)) + SIGNATURE_BYTES > most:
        del receipt["request"]["body"]
    return receipt if signer is None else signer.signed(receipt)


async def _receipt(request: web.Request) -> dict[str, Any]:
    return await give_receipt(request.path, request[BODY], first_of(request).around.signer)


async def _with_receipt(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """Adds the receipt to the object that a whole answer is; that of a stream is an event. Raises
    ValidationError."""
    if not isinstance(response, web.Response) or response.status != 200 or BODY not in request:
        return response
    assert isinstance(response.body, bytes)
    end = len(response.body) - (2 if response.body.endswith(b"]") else 1)  # `POST /` answers a list of one object
    receipt = orjson.dumps(await _receipt(request))
    response.body = b'%b,"%b":%b%b' % (response.body[:end], FIELD.encode(), receipt, response.body[end:])
    return response
