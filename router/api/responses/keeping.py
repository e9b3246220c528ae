"""Responses that are kept: what goes into the store, and the conversations that go on from there."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from penstock.router.api.openai.storage import known_form
from penstock.router.api.responses.bodies import AskingBody, Item, ResponseBody
from penstock.router.api.responses.input_items import PREFIXES, is_reference, own_items
from penstock.router.errors import ValidationError
from penstock.router.limits import Limits
from penstock.router.store.errors import Conflict, NotStored, StoreFailure
from penstock.router.store.records import VOID, ResponseStatus, StoredResponse

if TYPE_CHECKING:
    from penstock.router.store.store import Store  # which imports SQLAlchemy

_Body = TypeVar("_Body", bound=AskingBody)

KEEP_SECONDS = 5.0
"""How long the last event of a response waits for the store."""
MOST_REFERRED = 100
"""How many responses the references of one input may lead to."""
_NEEDED = "that takes --data-dir or --database-url"


@dataclass(frozen=True, slots=True)
class Keeper:
    """Keeps the response to a body in the store."""

    store: "Store"
    body: ResponseBody

    async def keep(self, content: dict[str, Any]) -> dict[str, Any]:
        """Stores a response that has ended, and returns it; one that the store does not take at once is not kept, and
        says so."""
        items = written(self.body, {"input"})
        row = StoredResponse(
            content["id"], content["created_at"], ResponseStatus(content["status"]), self.body.previous_response_id,
            False, items, orjson.dumps(content), len(items) + len(orjson.dumps(content["output"])), "")
        try:
            async with asyncio.timeout(KEEP_SECONDS):
                await self.store.responses.add(row)
        except (StoreFailure, TimeoutError):
            return {**content, "store": False}
        return content


def written(body: ResponseBody, fields: set[str] | None = None) -> bytes:
    """Returns a body, or some of its fields, as JSON."""
    return orjson.dumps(body.model_dump(exclude_unset=True, by_alias=True, include=fields),
                        option=orjson.OPT_NON_STR_KEYS)


async def before(body: AskingBody, store: "Store | None", limits: Limits) -> list[Item]:
    """Returns the items of the conversation from which a body goes on. Raises ValidationError without a store, and
    StoreFailure."""
    id = body.previous_response_id
    if id is None:
        return []
    if store is None:
        raise ValidationError("`previous_response_id` is for servers that keep responses, and this one does not: send "
                              f"the whole conversation as `input`, or start it otherwise: {_NEEDED}")
    chain = store.responses.chain(
        known_form("response", id, "previous_response_id"), limits.payload_limit, "previous_response_id")
    items: list[Item] = []
    try:
        async with aclosing(chain):
            async for each in chain:
                if each.status.has_ended and each.status not in VOID:
                    items += map(Item.model_validate, items_of(each))
                    continue
                raise ValidationError("`previous_response_id` must name a response that has come to its end, as must "
                                      f"those before it. Given: `{each.id}`, which is {each.status}")
    except Conflict as error:
        raise ValidationError(f"`previous_response_id`: {error.reason}") from error
    return items


async def resolved(body: _Body, store: "Store | None", limits: Limits) -> _Body:
    """Returns a body with the items to which its input refers. Raises NotStored for those that are not kept, and
    ValidationError for one without an id, and for more of them than a request may hold."""
    items = own_items(body.input)
    if store is None:
        return body
    references = _references(items)
    if not references:
        return body
    responses = {_response_of(id): id for id in references}
    if len(responses) > MOST_REFERRED:
        raise ValidationError(f"`input` must not refer to items of more than {MOST_REFERRED} responses. Given: "
                              f"{len(responses)}")
    found: dict[str, Item] = {}
    num_bytes = 0
    for id, item_id in responses.items():
        try:
            response = await store.responses.get(known_form("response", id))
        except NotStored as error:  # it names the response, of which the client has not told
            raise NotStored("item", item_id, "input") from error
        for item in items_of(response):
            if item["id"] in references.keys() - found.keys():
                num_bytes += references[item["id"]] * len(orjson.dumps(item))
                found[item["id"]] = Item.model_validate(item)
        if num_bytes > limits.payload_limit:
            raise ValidationError(f"`input` must not refer to items of more than {limits.payload_limit} bytes. Given: "
                                  f"{num_bytes}")
    missing = next((id for id in references if id not in found), None)
    if missing is not None:
        raise NotStored("item", missing, "input")
    return body.model_copy(update={"input": [found[item.id or ""] if is_reference(item) else item for item in items]})


def _references(items: Sequence[Item]) -> Counter[str]:
    """Returns how often items are referred to, by their ids. Raises ValidationError."""
    found = Counter[str]()
    for number, item in enumerate(items):
        if is_reference(item):
            if not item.id:
                raise ValidationError(f"`input[{number}]` must have the field `id`", "missing_required_parameter")
            found[item.id] += 1
    return found


def _response_of(item_id: str) -> str:
    """Returns the id of the response to which an item belongs, by the item's id."""
    return f"resp_{item_id.partition('_')[2].partition('_')[0]}"


def items_of(response: StoredResponse) -> list[dict[str, Any]]:
    """Returns the items of a response: those of its own input, and those that went out."""
    return [*came_in(response), *orjson.loads(response.response)["output"]]


def came_in(response: StoredResponse) -> list[dict[str, Any]]:
    """Returns the items of a response's own input, each with an id and a type, and its content in parts."""
    body = AskingBody.model_validate(orjson.loads(response.request))
    name = response.id.partition("_")[2]
    return [_told(item, f"{name}_in{number}") for number, item in enumerate(own_items(body.input))]


def _told(item: Item, name: str) -> dict[str, Any]:
    told = item.model_dump(exclude_unset=True)
    kind = item.type or "message"
    if kind == "message" and isinstance(item.content, str):
        part = "output_text" if item.role == "assistant" else "input_text"
        told["content"] = [{"type": part, "text": item.content, **({"annotations": []} if part[0] == "o" else {})}]
    return {"id": f"{PREFIXES[kind]}_{name}", "type": kind,
            **({"status": "completed"} if kind != "reasoning" else {}),
            **{key: value for key, value in told.items() if value is not None}}
