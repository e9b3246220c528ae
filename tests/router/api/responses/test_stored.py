"""Responses that are kept: got, listed, deleted, and gone on from."""

from dataclasses import replace
from typing import Any

import openai
import pytest
from sqlalchemy import update

from penstock.router.chat.template import ChatTemplate
from penstock.router.store.errors import StoreUnavailable
from penstock.router.store.responses import Responses
from penstock.router.store.tables import RESPONSES
from tests.fakes import LIMITS
from tests.router.api.conftest import Start
from tests.router.api.openai.chats import HELLO
from tests.router.api.openai.test_chat_tools import CALLS
from tests.router.api.responses.asking import TIME, URL, WEATHER, ask, stream
from tests.router.api.responses.keepers import Keeping, StartKeeping
from tests.router.api.sdk import openai_client
from tests.router.batches.servers import with_both


@with_both
async def test_the_whole_life_of_a_response(keeping: Keeping) -> None:
    made = await keeping.create(instructions="Be brief.", metadata={"a": "b"})
    assert await keeping.client.responses.retrieve(made.id) == made
    items = await keeping.client.responses.input_items.list(made.id)
    [item] = items.data
    assert (item.type, item.role, item.content[0].type, item.content[0].text) == (
        "message", "user", "input_text", "Hello")
    again = await keeping.create("Once more", previous_response_id=made.id)
    assert again.previous_response_id == made.id
    third = await keeping.create("And again", previous_response_id=again.id)
    page = await keeping.client.responses.input_items.list(third.id, order="asc", limit=3)
    texts = [item.content[0].text async for item in page]
    assert texts == ["Hello", made.output_text, "Once more", again.output_text, "And again"]
    newest = await keeping.client.responses.input_items.list(third.id, limit=1)
    assert [item.content[0].text for item in newest.data] == ["And again"]
    await keeping.client.responses.delete(made.id)
    for asked in (keeping.client.responses.retrieve(made.id), keeping.client.responses.delete(made.id),
                  keeping.create("Well?", previous_response_id=third.id)):
        with pytest.raises(openai.NotFoundError, match=f"There is no response `{made.id}`"):
            await asked


async def test_a_conversation_goes_on_as_if_it_was_sent_whole(start_keeping: StartKeeping) -> None:
    keeping = await start_keeping(answer="So.\n" + CALLS + "<|im_end|>")
    tools: Any = [WEATHER, TIME]
    first = await keeping.create("Hello", tools=tools)
    outputs: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "Sunny"}
                    for call in first.output if call.type == "function_call"]
    whole = await keeping.create([*HELLO, *first.output, *outputs], tools=tools, store=False)
    second = await keeping.create(outputs, previous_response_id=first.id, tools=tools)
    assert second.usage.input_tokens == whole.usage.input_tokens
    assert second.usage.input_tokens_details.cached_tokens >= 0.9 * second.usage.input_tokens
    referred: Any = [*HELLO, *({"type": "item_reference", "id": item.id} for item in first.output), *outputs]
    assert (await keeping.create(referred, tools=tools)).usage.input_tokens == whole.usage.input_tokens
    count = await keeping.client.responses.input_tokens.count(
        input=outputs, previous_response_id=first.id, tools=tools)
    assert count.input_tokens == whole.usage.input_tokens


async def test_a_conversation_that_is_too_long(start_keeping: StartKeeping) -> None:
    keeping = await start_keeping(limits=replace(LIMITS, payload_limit=4000))
    made = await keeping.create("a" * 2000)
    again = await keeping.create("b" * 2000, previous_response_id=made.id, truncation="auto", max_output_tokens=1)
    with pytest.raises(openai.BadRequestError, match="bytes together, and a conversation may have 4000"):
        await keeping.create("Well?", previous_response_id=again.id)


async def test_streams_are_kept_too(keeping: Keeping) -> None:
    events = await stream(keeping.server)
    last = events[-1]["response"]
    assert last["store"]
    assert (await (await keeping.server.client.get(f"{URL}/{last['id']}")).json()) == last


async def test_what_is_not_kept(keeping: Keeping) -> None:
    made = await ask(keeping.server, store=False)
    assert made["store"] is False
    assert (await keeping.server.client.get(f"{URL}/{made['id']}")).status == 404


async def test_one_key_has_one_response(keeping: Keeping) -> None:
    headers = {"Idempotency-Key": "one"}
    first, second = [await keeping.create(extra_headers=headers) for _ in range(2)]
    assert first.id == second.id
    other = await keeping.create(extra_headers=headers, metadata={"a": "b"})
    assert other.id != first.id


async def test_a_store_that_is_away_costs_no_answer(keeping: Keeping, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise StoreUnavailable

    monkeypatch.setattr(Responses, "add", fail)
    assert (await ask(keeping.server))["store"] is False
    assert (await stream(keeping.server))[-1]["response"]["store"] is False
    with pytest.raises(openai.InternalServerError):
        await keeping.create(background=True)


async def test_responses_expire(keeping: Keeping) -> None:
    made = await keeping.create()
    async with keeping.store.database.writing() as connection:
        await connection.execute(update(RESPONSES).values(expires_at=1))
    with pytest.raises(openai.NotFoundError):
        await keeping.client.responses.retrieve(made.id)
    await keeping.store.responses.sweep()
    async with keeping.store.database.reading() as connection:
        assert (await connection.execute(RESPONSES.select())).all() == []


async def test_without_a_store(start: Start, demo: ChatTemplate) -> None:
    server = await start(template=demo)
    assert (await ask(server, store=True))["store"] is False
    async with openai_client(server) as client:
        for asked in (client.responses.retrieve("resp_1"), client.responses.delete("resp_1"),
                      client.responses.cancel("resp_1"), client.responses.input_items.list("resp_1")):
            with pytest.raises(openai.APIStatusError, match="--data-dir or --database-url") as caught:
                await asked
            assert caught.value.status_code == 501
        for fields in ({"previous_response_id": "resp_1"}, {"background": True}):
            with pytest.raises(openai.BadRequestError, match="--data-dir or --database-url") as refused:
                await client.responses.create(model="any", input="Hello", **fields)
            assert refused.value.param == next(iter(fields))


async def test_a_name_that_no_database_takes(keeping: Keeping) -> None:
    with pytest.raises(openai.NotFoundError, match="There is no response"):
        await keeping.create(previous_response_id="resp_\0")


HOSTILE = [
    ("resp_x", 404, "There is no response `resp_x`"), ("resp_x!", 404, "There is no response"),
    ("{id}?strem=true", 400, "the parameters must be of"), ("{id}?stream=yes", 400, "`stream` must be true or false"),
    ("{id}?stream=true", 400, "`stream` is for responses of the background"),
    ("{id}?starting_after=1", 400, "`starting_after` is for `stream=true`"),
    ("{id}?include=x", 400, "`include` must be of"), ("{id}/input_items?limit=0", 400, "`limit` must be"),
    ("{id}/input_items?order=up", 400, "`order` must be asc or desc"),
    ("{id}/input_items?after=x", 404, "There is no item `x`"),
    ("resp_x/input_items", 404, "There is no response `resp_x`"),
]


async def test_hostile_paths(keeping: Keeping) -> None:
    made = await keeping.create()
    for path, status, sentence in HOSTILE:
        response = await keeping.server.client.get(f"{URL}/{path.format(id=made.id)}")
        assert response.status == status, path
        assert sentence in (await response.json())["error"]["message"]


async def test_references_that_lead_nowhere(keeping: Keeping) -> None:
    made = await keeping.create()
    name = made.id.removeprefix("resp_")
    for id in ("msg_1", f"msg_{name}_7", "_", "x" * 1000, "msg_\0"):
        with pytest.raises(openai.NotFoundError, match=f"There is no item `{id:.100}`"):
            await keeping.create([{"type": "item_reference", "id": id}])
    for item in ({"type": "item_reference"}, {"id": ""}):
        with pytest.raises(openai.BadRequestError, match=r"`input\[1\]` must have the field `id`"):
            await keeping.create([*HELLO, item])


async def test_items_that_are_referred_to_have_room(start_keeping: StartKeeping) -> None:
    keeping = await start_keeping(limits=replace(LIMITS, payload_limit=3000))
    made = await keeping.create("Hello " * 10)
    [item] = (await keeping.client.responses.input_items.list(made.id)).data
    reference: Any = {"id": item.id}  # whose type need not be told
    twice = (await keeping.create([reference] * 2)).usage.input_tokens
    assert twice > made.usage.input_tokens
    assert (await keeping.client.responses.input_tokens.count(input=[reference] * 2)).input_tokens == twice
    with pytest.raises(openai.BadRequestError, match="must not refer to items of more than 3000 bytes"):
        await keeping.create([reference] * 30)


async def test_pages_come_to_an_end_where_ids_come_twice(keeping: Keeping) -> None:
    items: Any = [{"id": id, "role": "user", "content": id} for id in "abacab"]
    made = await keeping.create(items)
    page = await keeping.client.responses.input_items.list(made.id, order="asc", limit=1)
    assert len([item async for item in page]) <= len(items)
