"""Responses outlive routers: those of the background go on by themselves, streams by their clients."""

import http.client
import json
import time
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.e2e.server import Server, serve
from tests.e2e.test_batches import kill_router

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
BODY: dict[str, Any] = {"model": "any", "max_output_tokens": 300, "temperature": 1.5,
                        "extra_body": {"ignore_eos": True}}


@pytest.fixture
def server(tmp_path: Path) -> Any:
    with serve(tmp_path, "--data-dir", str(tmp_path / "data")) as server:
        yield server


def test_those_of_the_background_go_on(server: Server) -> None:
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=20)
    asked = [{**BODY, "input": f"def walk{number}(path):", "extra_body": {**BODY["extra_body"], "seed": number}}
             for number in range(8)]
    undisturbed = [client.responses.create(**body, store=False).output_text for body in asked]
    made = [client.responses.create(**body, background=True) for body in asked]
    seen = _some_events(client, made[0].id)
    kill_router(server)
    for response, expected in zip(made, undisturbed, strict=True):
        assert _ended(client, response.id).output_text == expected
    again = list(client.responses.retrieve(made[0].id, stream=True))
    assert again[:len(seen)] == seen
    rest = list(client.responses.retrieve(made[0].id, stream=True, starting_after=seen[-1].sequence_number))
    assert [*seen, *rest] == again


def _some_events(client: openai.OpenAI, id: str) -> list[Any]:
    events = []
    for event in client.responses.retrieve(id, stream=True):
        events.append(event)
        if len(events) > 20:
            return events
    raise AssertionError("it was too quick to be disturbed")


def _ended(client: openai.OpenAI, id: str) -> Any:
    end = time.monotonic() + 120
    while (response := client.responses.retrieve(id)).status in ("queued", "in_progress"):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert response.status == "incomplete", response
    return response


def test_a_stream_goes_on(server: Server) -> None:
    body = {**BODY, **BODY["extra_body"], "input": "import os", "stream": True, "seed": 5}
    del body["extra_body"]
    whole = _read(server, body, [])
    seen: list[tuple[str, Any]] = []
    _read(server, body, seen, most=50)
    kill_router(server)
    rest = _read(server, body, seen)
    assert [event for _, event in rest[:-1]] == [event for _, event in whole[:-1]]
    last, expected = rest[-1][1]["response"], whole[-1][1]["response"]
    assert (last["id"], last["output"], last["status"]) == (expected["id"], expected["output"], "incomplete")


def _read(server: Server, body: dict[str, Any], seen: list[tuple[str, Any]], most: int = 10_000
          ) -> list[tuple[str, Any]]:
    """Adds the events behind those that were seen, each with its id, and returns all of them."""
    headers = {"content-type": "application/json", "accept": "text/event-stream"}
    if seen:
        headers["Last-Event-ID"] = seen[-1][0]
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    connection.request("POST", "/v1/responses", json.dumps(body), headers)
    response, data = connection.getresponse(), b""
    assert response.status == 200
    for line in response:
        if line.startswith(b"data: "):
            data = line[6:]
        elif line.startswith(b"id: "):
            event = json.loads(data)
            for each in (event, event.get("response", {})):
                each.pop("created_at", None)
            seen.append((line[4:].decode().strip(), event))
            if len(seen) >= most:
                break
    connection.close()
    return seen
