"""The routes of responses that are kept: get, follow, cancel and delete one, and list the items of its input."""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, get_args

import orjson
from aiohttp import web

from penstock.router.api.http.body import json_response
from penstock.router.api.http.sse import ADMITTED, AnswerEvent, EventStyle, stream_events
from penstock.router.api.openai.files import page
from penstock.router.api.openai.storage import check_query, known_form, limit_of, store_of
from penstock.router.api.responses import keeping
from penstock.router.api.responses.bodies import Includable
from penstock.router.api.responses.input_items import carried
from penstock.router.errors import RouterError, ValidationError
from penstock.router.generation.services import first_of
from penstock.router.store.errors import NotStored, StoreUnavailable
from penstock.router.store.records import ResponseStatus, StoredResponse

if TYPE_CHECKING:
    from penstock.router.store.store import Store  # which imports SQLAlchemy

FOLLOW_SECONDS = 0.25
"""How often the next events of a response are looked for that is being made."""
MAX_PAGE, DEFAULT_PAGE = 100, 20
QUERY = {
    "stream": "`true` for the events of a response of the background.",
    "starting_after": "The number of the event behind which they begin.",
    "include": "Parts to tell in addition; given once for each.",
    "include_obfuscation": "Whether events are padded; none are.",
}
"""The parameters of a response."""
ITEMS_QUERY = {
    "limit": "How many items the page has at most.", "after": "The id of the item behind which the page begins.",
    "order": "`asc` for the first item first, or `desc`.", "include": QUERY["include"],
}
"""The parameters of the list of its input."""


async def retrieve(request: web.Request) -> web.StreamResponse:
    """Answers with a response, or its events, as `stream` says."""
    store, query = store_of(request), request.query
    check_query(request, [*QUERY, "include[]"])
    include, is_stream = _include(request), _flag(query, "stream")
    _flag(query, "include_obfuscation")
    response = await store.responses.get(_id(request))
    if not is_stream:
        if "starting_after" in query:
            raise ValidationError("`starting_after` is for `stream=true`")
        return json_response(described(response, include))
    if not response.is_background:
        raise ValidationError("`stream` is for responses of the background: a stream that broke off goes on by the "
                              "header Last-Event-ID")
    number = 1 + _number(query, "starting_after") if "starting_after" in query else 0
    # That which tells of the end of one that was cancelled is not stored: it is behind all others.
    last = response.num_events - (response.status is not ResponseStatus.CANCELLED)
    if response.status.has_ended and number > last:
        raise ValidationError(f"`starting_after` must be less than {last}, the number of the last event. Given: "
                              f"{number - 1}")
    return await follow(request, store, response.id, number)


async def delete(request: web.Request) -> web.Response:
    """Deletes a response; one that is being made is given up."""
    id = _id(request)
    await store_of(request).responses.delete(id)
    return json_response({"id": id, "object": "response", "deleted": True})


async def cancel(request: web.Request) -> web.Response:
    """Cancels a response of the background."""
    return json_response(described(await store_of(request).responses.cancel(_id(request))))


async def input_items(request: web.Request) -> web.Response:
    """Answers with a page of the items of which a response was made, the last first unless `order` says otherwise."""
    store, query = store_of(request), request.query
    check_query(request, [*ITEMS_QUERY, "include[]"])
    _include(request)
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise ValidationError(f"`order` must be asc or desc. Given: {order:.40}")
    limit, after = limit_of(request, MAX_PAGE, DEFAULT_PAGE), query.get("after")
    id, items = _id(request), list[dict[str, Any]]()
    async with aclosing(store.responses.chain(id, first_of(request).limits.payload_limit)) as chain:
        async for each in chain:
            items += keeping.items_of(each) if each.id != id else keeping.came_in(each)
    if order == "desc":
        items.reverse()
    if after is not None:
        # Clients may have given an id twice: behind the last of them no page comes again.
        place = max((number for number, item in enumerate(items, 1) if item["id"] == after), default=None)
        if place is None:
            raise NotStored("item", after, "after")
        items = items[place:]
    return json_response(page(items[:limit], len(items) > limit))


def described(response: StoredResponse, include: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Returns a response as it is now, with what was asked to be told in addition."""
    content: dict[str, Any] = {**orjson.loads(response.response), "status": response.status}
    if "reasoning.encrypted_content" in include:
        content["output"] = [
            {**item, "encrypted_content": carried(item["content"][0]["text"])} if item["type"] == "reasoning" else item
            for item in content["output"]]
    return content


async def follow(request: web.Request, store: "Store", id: str, number: int) -> web.StreamResponse:
    """Answers with the events of a response of the background, from this number on, as they come."""
    told = [number]

    def fail(error: RouterError) -> bytes:
        return orjson.dumps(_error(error.code, error.reason, told[0]))

    async def events() -> AsyncGenerator[AnswerEvent]:
        yield ADMITTED
        while True:
            try:
                status, found = await store.responses.events(id, told[0])
            except StoreUnavailable:  # the client would not find out whether it has missed something
                await asyncio.sleep(FOLLOW_SECONDS)
                continue
            for _, event in found:
                yield AnswerEvent(0, event, event[9:event.index(b'"', 9)])  # behind `{"type":"`
            told[0] += len(found)
            if not found:
                if status is ResponseStatus.CANCELLED:
                    last = _error("response_cancelled", f"the response `{id}` was cancelled", told[0])
                    yield AnswerEvent(0, orjson.dumps(last), b"error")
                elif status.has_ended and told[0] == number:
                    raise ValidationError("`starting_after` is not the number of an event before the last one")
                if status.has_ended:
                    return
                await asyncio.sleep(FOLLOW_SECONDS)

    return await stream_events(request, {}, events(), EventStyle(fail, b"error"))


def _error(code: str, message: str, number: int) -> dict[str, Any]:
    return {"type": "error", "sequence_number": number, "code": code, "message": message, "param": None}


def _id(request: web.Request) -> str:
    return known_form("response", request.match_info["response"])


def _flag(query: Mapping[str, str], name: str) -> bool:
    text = query.get(name, "false")
    if text not in ("true", "false"):
        raise ValidationError(f"`{name}` must be true or false. Given: {text:.40}")
    return text == "true"


def _number(query: Mapping[str, str], name: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", query[name]):
        raise ValidationError(f"`{name}` must be an integer from 0 on. Given: {query[name]:.40}")
    return int(query[name])


def _include(request: web.Request) -> frozenset[str]:
    names = [*request.query.getall("include", ()), *request.query.getall("include[]", ())]
    for name in names:
        if name not in get_args(Includable):
            raise ValidationError(f"`include` must be of {', '.join(get_args(Includable))}. Given: {name:.40}")
    return frozenset(names)
