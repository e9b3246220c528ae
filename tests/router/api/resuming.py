"""What tests of broken streams share: a model whose answers follow from seed and position, and clients that go on."""

import json
from dataclasses import dataclass, replace
from typing import Any

from penstock.contract.initial_state import InitialState
from penstock.contract.row import Row
from tests.fakes import ScriptedFleet
from tests.router.api.conftest import Script, Server

READS_IDS = {"accept": "text/event-stream"}


class SeededFleet(ScriptedFleet):
    """The scripted answer from a place that the seed and the branch decide, as a real model's from its state: it makes
    no difference in how many requests the answer is had."""

    def __init__(self, script: Script) -> None:
        super().__init__(self._answer)
        self._ids = script.ids
        self._states: dict[int, InitialState] = {}

    def _answer(self, row: Row) -> int:
        state = self._states.get(row.slot) if row.initial_state is None else row.initial_state
        assert state is not None
        self._states[row.slot] = state
        place = row.start + row.num_inputs - state.prompt_length
        return self._ids[(place + 3 * state.sampling.branch + state.sampling.seed % 5) % len(self._ids)]

    def _run(self, row: Row, mask: bytes | None) -> Any:
        if row.initial_state is not None:  # which a row brings that samples nothing yet
            self._states[row.slot] = row.initial_state
        return super()._run(row, mask)


@dataclass(frozen=True)
class Event:
    """An event of a stream: its id, and what it says, without what tells of when and where it was computed."""

    id: str
    data: Any

    @property
    def index(self) -> int:
        """The answer that it belongs to; -1 for none."""
        choices = self.data.get("choices") if isinstance(self.data, dict) else []
        if choices is None:
            return 0
        return int(choices[0]["index"]) if choices else -1

    @property
    def counts(self) -> list[int]:
        return [int(count) for count in self.id.rpartition(".")[2].split("-")]


def read(text: str) -> list[Event]:
    """The events of a stream, each of which has an id."""
    frames = text.split("\n\n")
    assert frames.pop() == ""
    events = []
    for frame in frames:
        data, id = frame.splitlines()
        assert data.startswith("data: ")
        assert id.startswith("id: ")
        events.append(Event(id.removeprefix("id: "), _lasting(data.removeprefix("data: "))))
    return events


def _lasting(data: str) -> Any:
    if data == "[DONE]":
        return data
    content = json.loads(data)
    content.pop("created", None)
    for usage in (content.get("usage"), content.get("details")):
        for name in ("prompt_tokens_details", "prefix_hit_tokens"):
            (usage or {}).pop(name, None)
    return content


async def stream(server: Server, path: str, body: object, **headers: str) -> list[Event]:
    """Asks for a stream; a header's name is written with underscores."""
    response = await post(server, path, body, **headers)
    assert response.status == 200, await response.text()
    return read(await response.text())


async def post(server: Server, path: str, body: object, **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response = await server.client.post(path, json=body, headers={**READS_IDS, **named})
    if response.headers.get("content-type") != "text/event-stream" or server.fleet.may_answer.is_set():
        await response.read()
    return response


async def refusal(server: Server, path: str, body: object, **headers: str) -> tuple[int, str]:
    response = await post(server, path, body, **headers)
    text = await response.text()
    error = json.loads(text)["error"]
    return response.status, error if isinstance(error, str) else error["message"]


def by_answer(events: list[Event]) -> dict[int, list[Any]]:
    """What the events of each answer say, in their order."""
    found: dict[int, list[Any]] = {}
    for event in events:
        found.setdefault(event.index, []).append(event.data)
    return found


def with_other_numerics(server: Server, **facts: Any) -> None:
    """As if the server had been started on another processor, or with these other facts."""
    server.engine.facts = replace(server.engine.facts, **(facts or {"numerics": "other"}))
    server.groups.note()
