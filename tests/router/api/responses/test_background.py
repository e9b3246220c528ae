"""Responses of the background: made behind all others, followed, cancelled, and gone on with by another router."""

import asyncio
from typing import Any

import aiohttp
import openai
import pytest
from sqlalchemy import update

from penstock.bench.replay.asking import ask
from penstock.bench.replay.recorded import recorded
from penstock.router import leased_work
from penstock.router.background import response_run
from penstock.router.background.response_run import ResponseRun
from penstock.router.errors import Unhealthy
from penstock.router.store.errors import StoreUnavailable
from penstock.router.store.response_leases import ResponseLease
from penstock.router.store.responses import Responses
from penstock.router.store.tables import RESPONSES
from tests.eventually import until
from tests.router.api.openai.chats import TEXT
from tests.router.api.responses.asking import URL, lasting, order, stream
from tests.router.api.responses.keepers import Keeping, StartKeeping
from tests.router.api.responses.test_output_items import MESSAGE
from tests.router.api.resuming import SeededFleet
from tests.router.batches.servers import with_both

ORDER = ["created", "queued", "in_progress", *MESSAGE, "completed"]


@with_both
async def test_the_whole_life_of_a_response(keeping: Keeping) -> None:
    made = await keeping.create(background=True)
    assert (made.status, made.background, made.output) == ("queued", True, [])
    done = await keeping.ended(made.id)
    assert (done.status, done.output_text, done.created_at) == ("completed", TEXT, made.created_at)
    events = await keeping.events(made.id)
    assert order(events) == ORDER
    assert events[-1]["response"] == done.model_dump(exclude_unset=True)
    for number in range(len(events) - 1):
        assert await keeping.events(made.id, number) == events[number + 1:]
    refused = await keeping.server.client.get(f"{URL}/{made.id}?stream=true&starting_after={len(events) - 1}")
    assert refused.status == 400
    again = await keeping.create("Go on", previous_response_id=made.id)
    assert again.status == "completed"
    assert await keeping.client.responses.cancel(made.id) == done  # which changes nothing any more


async def test_a_stream_of_the_background(keeping: Keeping) -> None:
    events = await stream(keeping.server, background=True)
    assert order(events) == ORDER
    stored = await keeping.client.responses.retrieve(events[0]["response"]["id"])
    assert lasting(events[-1]["response"])["output"] == lasting(stored.model_dump(exclude_unset=True))["output"]


async def test_the_receipt_of_a_response_that_was_tried_again_has_one_answer(keeping: Keeping) -> None:
    server = keeping.server
    server.fleet.may_answer.clear()
    id = (await keeping.create(background=True, max_output_tokens=5, extra_body={"receipt": True})).id
    await until(lambda: server.engine._requests.number == 1)
    server.engine._requests.fail_all(Unhealthy())
    server.fleet.may_answer.set()
    made = (await keeping.ended(id)).model_dump()
    assert [answer["tokens"] for answer in made["receipt"]["answers"]] == [5]


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_receipt_comes_with_the_end(keeping: Keeping, is_stream: bool) -> None:
    """By it the response is asked for once more, and waited for."""
    asked = {"background": True, "temperature": 0.9, "top_p": 0.95, "max_output_tokens": 5, "receipt": True}
    if is_stream:
        events = await stream(keeping.server, **asked)
        begun, id = events[0]["response"], events[0]["response"]["id"]
        assert events[-1]["type"] == "response.incomplete"
    else:
        response = await keeping.server.post(URL, {"model": "any", "input": "Hello", **asked})
        begun = await response.json()
        id = begun["id"]
    assert begun["receipt"] is None
    await keeping.ended(id)
    made = await (await keeping.server.client.get(f"{URL}/{id}")).json()
    receipt = made["receipt"]
    assert receipt["tokens"]["output"] == made["usage"]["output_tokens"] == 5
    assert is_stream is False or events[-1]["response"]["receipt"] == receipt
    async with aiohttp.ClientSession() as session:
        again = await ask(session, str(keeping.server.client.make_url("")).rstrip("/"), recorded(made))
    assert not again.difference
    assert b'"background":false' in again.answer


@with_both
async def test_a_response_is_cancelled(keeping: Keeping) -> None:
    keeping.server.fleet.may_answer.clear()
    made = await keeping.create(background=True)
    following = asyncio.create_task(keeping.events(made.id))
    await until(lambda: keeping.server.engine._requests)
    assert (await keeping.client.responses.cancel(made.id)).status == "cancelled"
    assert (await following)[-1]["code"] == "response_cancelled"
    await until(lambda: not keeping.server.engine._requests)
    assert (await keeping.client.responses.retrieve(made.id)).status == "cancelled"
    told = await keeping.events(made.id)
    number = told[-1]["sequence_number"]
    assert (told[-1]["code"], number) == ("response_cancelled", len(told) - 1)
    assert number == 0 or await keeping.events(made.id, number - 1) == told[-1:]
    assert (await keeping.server.client.get(f"{URL}/{made.id}?stream=true&starting_after={number}")).status == 400
    keeping.server.fleet.may_answer.set()
    with pytest.raises(openai.BadRequestError, match="which is cancelled"):
        await keeping.create(previous_response_id=made.id)


async def test_one_that_is_cancelled_before_its_first_event(start_keeping: StartKeeping) -> None:
    waiting = await start_keeping(has_runner=False)
    made = await waiting.create(background=True)
    await waiting.client.responses.cancel(made.id)
    [only] = await waiting.events(made.id)
    assert (only["type"], only["code"], only["sequence_number"]) == ("error", "response_cancelled", 0)


async def test_one_that_is_cancelled_as_its_answer_begins(keeping: Keeping, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = ResponseLease.begin

    async def begin_too_late(self: ResponseLease, answer_name: str) -> None:
        await keeping.store.responses.cancel(self.id)
        await begin(self, answer_name)

    monkeypatch.setattr(ResponseLease, "begin", begin_too_late)
    monkeypatch.setattr(response_run, "SAVE_SECONDS", 60.0)  # that nobody sees it before
    await keeping.create(background=True)
    await until(lambda: keeping.server.series()['tgi_request_failure{err="dropped"}'] == 1)
    assert keeping.server.series()['tgi_request_failure{err="generation"}'] == 0


async def test_one_of_the_same_seed_is_made_anew(keeping: Keeping) -> None:
    seed: Any = {"extra_body": {"seed": 5}}
    keeping.server.fleet.may_answer.clear()
    made = await keeping.create(background=True, **seed)
    await keeping.client.responses.cancel(made.id)
    keeping.server.fleet.may_answer.set()
    again = await keeping.create(background=True, **seed)
    assert (again.id, (await keeping.ended(again.id)).status) == (made.id, "completed")
    at_once = await keeping.create(**seed)
    assert (at_once.id != again.id, at_once.background) == (True, False)
    assert order(await stream(keeping.server, background=True, seed=5, model="any")) == ORDER


async def test_a_follower_waits_for_a_store_that_is_away(keeping: Keeping, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await keeping.create(background=True)
    await keeping.ended(made.id)
    tries, events = [0], Responses.events

    async def sometimes(self: Responses, id: str, number: int) -> Any:
        tries[0] += 1
        if tries[0] % 2:
            raise StoreUnavailable
        return await events(self, id, number)

    monkeypatch.setattr(Responses, "events", sometimes)
    assert order(await keeping.events(made.id)) == ORDER


async def test_one_that_is_deleted_is_given_up(keeping: Keeping) -> None:
    keeping.server.fleet.may_answer.clear()
    made = await keeping.create(background=True)
    await until(lambda: keeping.server.engine._requests)
    await keeping.client.responses.delete(made.id)
    await until(lambda: not keeping.server.engine._requests)


async def test_one_that_was_not_asked_for_in_the_background(keeping: Keeping) -> None:
    made = await keeping.create()
    with pytest.raises(openai.ConflictError, match="was not asked for in the background"):
        await keeping.client.responses.cancel(made.id)


@pytest.mark.parametrize("fields", [{"store": False}, {"max_output_tokens": 0}, {"text": {"format": {"type": "x"}}},
                                    {"temperature": -1.0}, {"input": "Hello " * 3000}, {"deadline_ms": 60_000}])
async def test_what_is_refused_at_once(keeping: Keeping, fields: dict[str, Any]) -> None:
    response = await keeping.server.post(URL, {"input": "Hello", "background": True, **fields})
    assert response.status == 400


@with_both
async def test_another_router_goes_on(start_keeping: StartKeeping) -> None:
    """With the same events, wherever the first one has died."""
    waiting = await start_keeping(has_runner=False, make_fleet=SeededFleet)
    made = await waiting.create(background=True, temperature=1.0)
    lease = await ResponseLease.claim(waiting.store.database, "dead", ())
    assert lease is not None
    alive = await start_keeping("alive", make_fleet=SeededFleet)
    assert (await alive.client.responses.retrieve(made.id)).status == "queued"
    async with alive.store.database.writing() as connection:
        await connection.execute(update(RESPONSES).values(lease_until=1.0))
    first = await alive.ended(made.id)
    events = await alive.events(made.id)
    async with alive.store.database.writing() as connection:  # as if it had died amid the same response
        await connection.execute(update(RESPONSES).values(status="in_progress", num_events=6, lease_until=1.0))
        await connection.exec_driver_sql("DELETE FROM response_events")
    alive.store.responses.changed.set()
    again = await alive.ended(made.id)
    assert again.output == first.output
    assert await alive.events(made.id, 5) == [*events[6:-1], {**events[-1], "response": _as(again)}]


def _as(response: Any) -> dict[str, Any]:
    content: dict[str, Any] = response.model_dump(exclude_unset=True)
    return content


async def test_events_that_would_not_come_again(keeping: Keeping) -> None:
    made = await keeping.create(background=True)
    await keeping.ended(made.id)
    async with keeping.store.database.writing() as connection:
        await connection.execute(update(RESPONSES).values(
            status="in_progress", answer_name="0123456789abcdef.5.01234567", lease_until=1.0))
    keeping.store.responses.changed.set()
    failed = await keeping.ended(made.id)
    assert failed.status == "failed"
    assert failed.error is not None
    assert "differ from those of this one" in failed.error.message
    assert (await keeping.events(made.id))[-1]["type"] == "response.failed"


async def test_one_that_ends_routers_is_given_up(start_keeping: StartKeeping) -> None:
    waiting = await start_keeping(has_runner=False)
    made = await waiting.create(background=True)
    async with waiting.store.database.writing() as connection:
        await connection.execute(update(RESPONSES).values(lease_faults=3))
    failed = await (await start_keeping("other")).ended(made.id)
    assert (failed.status, failed.error.code if failed.error else None) == ("failed", "server_error")
    assert order(await waiting.events(made.id)) == ["created", "queued", "in_progress", "failed"]


async def test_one_at_which_the_router_fails_again_and_again(
    keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    async def run_with_a_fault(self: ResponseRun) -> None:
        tries.append(self)
        raise ZeroDivisionError

    monkeypatch.setattr(leased_work, "FAULT_SECONDS", 0.0)
    monkeypatch.setattr(ResponseRun, "run", run_with_a_fault)
    failed = await keeping.ended((await keeping.create(background=True)).id)
    assert (failed.status, failed.error.code if failed.error else None, len(tries)) == ("failed", "server_error", 3)
