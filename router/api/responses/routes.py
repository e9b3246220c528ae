"""OpenAI's `/v1/responses`: makes responses, and counts the tokens of what they would be made of."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import orjson
from aiohttp import web

from penstock.router.api.http.body import json_response, read_body
from penstock.router.api.http.headers import wish_of
from penstock.router.api.http.receipts import FIELD, is_deferred
from penstock.router.api.openai.storage import check_metadata, store_if_any
from penstock.router.api.responses import answering, keeping, stored
from penstock.router.api.responses.bodies import AskingBody, Item, ResponseBody
from penstock.router.api.responses.turns import dialogue_of
from penstock.router.errors import ValidationError
from penstock.router.generation import request_record
from penstock.router.generation.asking import Asking
from penstock.router.generation.identity import RESUME, Wish
from penstock.router.generation.refusals import refuse_if
from penstock.router.generation.services import service_of
from penstock.router.generation.validation import validate
from penstock.router.store.records import ResponseStatus, StoredResponse

if TYPE_CHECKING:
    from penstock.router.store.store import Store  # which imports SQLAlchemy


async def create(request: web.Request) -> web.StreamResponse:
    """Makes a response, whole or in events, as `stream` says, or later, in the background."""
    body = await read_body(request, ResponseBody)
    request_record.describe("response", body.model)
    check_metadata(body.metadata)
    with Asking(await service_of(request, body.model)) as asking:
        wish, store = wish_of(request), store_if_any(request)
        before = await keeping.before(body, store, asking.service.limits)
        body = await keeping.resolved(body, store, asking.service.limits)
        if body.background:
            queued = await _queued(asking, body, before, wish, store, is_deferred(request))
            assert store is not None
            if body.stream:
                return await stored.follow(request, store, queued.id, 0)
            return json_response(stored.described(queued))
        keep = keeping.Keeper(store, body).keep if store is not None and body.store is not False else None
        if body.stream:
            return await answering.stream(request, asking, body, before, wish, keep)
        content, headers = await answering.whole_answer(asking, body, before, wish, keep)
        return json_response(content, headers=headers)


async def _queued(
    asking: Asking, body: ResponseBody, before: Sequence[Item], wish: Wish, store: "Store | None", wants_receipt: bool
) -> StoredResponse:
    """Returns a response that a router is going to make, once its body was checked. If it `wants_receipt` it has an
    empty field for it. Raises RouterError."""
    if store is None:
        raise ValidationError("`background` is for servers that keep responses, and this one does not: that takes "
                              "--data-dir or --database-url")
    if body.store is False:
        raise ValidationError("`background` needs `store`, which must not be false")
    refuse_if(body.deadline_ms is not None,
              "`deadline_ms` is not for responses of the background, which make way for other requests",
              "unsupported_parameter")
    if wish.resume_after is not None:
        raise ValidationError(f"`{RESUME}` is not for responses of the background: GET them with `stream=true` and "
                              "`starting_after`")
    async with answering.asked_of(asking, body, before, wish, is_stream=False) as asked:
        service, identity = asking.service, asked.identity
        await validate(asked.spec, service.limits, service.tokenizer, identity.facts, service.grammars,
                       service.adapters, identity.seed_of(0), adapter=identity.adapter)
        begun = {**answering.begun(asked, body, is_stored=True), "status": ResponseStatus.QUEUED}
        if wants_receipt:
            begun[FIELD] = None
    queued = await store.responses.add(StoredResponse(
        begun["id"], begun["created_at"], ResponseStatus.QUEUED, body.previous_response_id, True,
        keeping.written(body), orjson.dumps(begun), len(keeping.written(body, {"input"})), str(identity.name),
        api_key=request_record.current().key))
    asking.succeeded()
    return queued


async def count_tokens(request: web.Request) -> web.Response:
    """Answers with the number of tokens that the prompt of a response would have."""
    body = await read_body(request, AskingBody)
    service = await service_of(request, body.model)
    store = store_if_any(request)
    before = await keeping.before(body, store, service.limits)
    body = await keeping.resolved(body, store, service.limits)
    async with service.engine.permit():
        number = await dialogue_of(body, before, service).num_tokens(service)
    return json_response({"object": "response.input_tokens", "input_tokens": number})
