"""Streams of `/v1/responses`: their events, their failures, and where they broke off."""

import asyncio
from dataclasses import replace
from typing import Any

from penstock.router.chat.template import ChatTemplate
from tests.eventually import until
from tests.fakes import LIMITS
from tests.router.api.conftest import Server, Start
from tests.router.api.openai.test_chat_tools import CALLS
from tests.router.api.responses.asking import TIME, URL, WEATHER, ask, lasting, order, read, stream
from tests.router.api.responses.test_output_items import CALL, MESSAGE
from tests.router.api.resuming import SeededFleet


async def test_events_are_those_of_the_whole_response(start: Start, demo: ChatTemplate, hermes: ChatTemplate) -> None:
    talker = await start(template=demo)
    caller = await start(template=hermes, answer="Let me see.\n" + CALLS + "<|im_end|>")
    cases: list[tuple[Server, dict[str, Any], list[str]]] = [
        (talker, {}, MESSAGE), (caller, {"tools": [WEATHER, TIME]}, [*MESSAGE, *CALL, *CALL])]
    for server, fields, items in cases:
        whole, events = await ask(server, **fields), await stream(server, **fields)
        assert order(events) == ["created", "in_progress", *items, "completed"]
        assert events[0]["sequence_number"] == 0
        assert events[0]["response"]["output"] == []
        assert events[0]["response"]["status"] == events[1]["response"]["status"] == "in_progress"
        assert lasting(events[-1]["response"]) == lasting(whole)


async def test_a_failure_is_the_last_event(start: Start, demo: ChatTemplate) -> None:
    server = await start(template=demo)
    server.fleet.may_answer.clear()
    response = await server.post(URL, {"input": "Hello", "stream": True})
    assert response.status == 200
    server.engine.give_up()
    events = read(await response.text())
    assert order(events) == ["created", "in_progress", "failed"]
    assert events[-1]["response"]["error"]["code"] == "server_error"


async def test_a_strict_server_tells_of_a_failure_by_the_status(start: Start, demo: ChatTemplate) -> None:
    server = await start(template=demo, limits=replace(LIMITS, strict_streaming_errors=True))
    assert order(await stream(server)) == ["created", "in_progress", *MESSAGE, "completed"]
    server.fleet.may_answer.clear()
    asked = asyncio.create_task(server.post(URL, {"input": "Hello", "stream": True}))
    await until(lambda: server.engine._requests)
    server.engine.give_up()
    response = await asked
    assert response.status >= 400
    assert (await response.json())["error"]["type"] == "server_error"


async def test_a_response_is_repeated(start: Start, hermes: ChatTemplate) -> None:
    server = await start(template=hermes, make_fleet=SeededFleet)
    first = await server.post(URL, {"input": "Hello", "temperature": 1.0})
    again = await server.client.post(URL, json={"input": "Hello", "temperature": 1.0},
                                     headers={"penstock-answer": first.headers["penstock-answer"]})
    one, other = await first.json(), await again.json()
    assert (one["id"], one["output"]) == (other["id"], other["output"])


async def test_a_stream_goes_on_behind_each_event(start: Start, hermes: ChatTemplate) -> None:
    fleet: dict[str, Any] = {"template": hermes, "answer": "So.\n" + CALLS + "<|im_end|>", "make_fleet": SeededFleet}
    server, other = await start(**fleet), await start(**fleet)
    body = {"input": "Hello", "stream": True, "tools": [WEATHER, TIME], "temperature": 0}
    response = await server.client.post(URL, json=body, headers={"accept": "text/event-stream"})
    text = await response.text()
    whole, ids = read(text), [line[4:] for line in text.splitlines() if line.startswith("id: ")]
    assert len(ids) == len(whole)
    for number, id in enumerate(ids, 1):
        response = await other.client.post(URL, json=body, headers={"last-event-id": id})
        rest = await response.text()
        assert [_lasting(event) for event in read(rest)] == [_lasting(event) for event in whole[number:]] if rest else (
            number == len(whole))


def _lasting(event: dict[str, Any]) -> dict[str, Any]:
    if "response" not in event:
        return event
    return {**event, "response": {**event["response"], "created_at": 0, "completed_at": 0, "usage": None}}
