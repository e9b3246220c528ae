"""Thoughts of the demo model, which are babble: budgets hold to the token, with guesses and without, forms bind what is
behind, and streams are the same where shards die amid the thinking and where their clients go on."""

import asyncio
import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.client import many_clients
from tests.e2e.server import Server, serve

TEMPLATE = ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}def think():\n<think>\n{% endif %}{# </think> #}")
FORM = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": [{"a": 1}, {"b": [2, 3]}]}}}
NUM_ASKS = 24

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def bodies(dice: random.Random) -> list[dict[str, Any]]:
    made = []
    for number in range(NUM_ASKS):
        budget = dice.randrange(40)
        body = {"messages": [{"role": "user", "content": f"import os\n{number}"}], "seed": number, "stream": True,
                "thinking_token_budget": budget, "max_tokens": budget + 30, "stream_options": {"include_usage": True}}
        made.append(body | dice.choice([{}, {"temperature": 0}, {"response_format": FORM}]))
    return made


async def streamed(
    session: aiohttp.ClientSession, server: Server, body: dict[str, Any], after: str | None = None
) -> list[tuple[str, dict[str, Any]]]:
    """The chunks of an answer with their ids, all or those behind one."""
    headers = {"accept": "text/event-stream", **({} if after is None else {"Last-Event-ID": after})}
    async with session.post(f"{server.url}/v1/chat/completions", json=body, headers=headers) as response:
        assert response.status == 200, await response.text()
        events = [event.splitlines() for event in (await response.text()).split("\n\n")]
    found = [{name: value for name, _, value in (line.partition(": ") for line in event)} for event in events]
    return [(event["id"], json.loads(event["data"])) for event in found if event.get("data", "[")[0] == "{"]


def told(chunks: list[tuple[str, dict[str, Any]]]) -> tuple[list[Any], dict[str, Any]]:
    """What an answer says, and its usage; the time in its head is another each time."""
    return [chunk["choices"] for _, chunk in chunks], chunks[-1][1]["usage"]


def check(body: dict[str, Any], chunks: list[tuple[str, dict[str, Any]]]) -> None:
    choices, usage = told(chunks)
    number = usage["completion_tokens_details"]["reasoning_tokens"]
    text = "".join(choice["delta"].get("content") or "" for [choice] in choices[:-1])
    assert number == body["thinking_token_budget"] or (number < body["thinking_token_budget"] and "response_format"
                                                       not in body)
    if "response_format" in body:
        assert json.loads(text) in FORM["json_schema"]["schema"]["enum"]  # type: ignore[index]


async def check_beams(session: aiohttp.ClientSession, server: Server) -> None:
    body = {"messages": [{"role": "user", "content": "def"}], "use_beam_search": True, "n": 3, "temperature": 0,
            "max_tokens": 40, "thinking_token_budget": 7, "response_format": FORM}
    async with session.post(f"{server.url}/v1/chat/completions", json=body) as response:
        assert response.status == 200, await response.text()
        answer = await response.json()
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] <= 3 * 7
    assert answer["choices"]
    for choice in answer["choices"]:
        assert json.loads(choice["message"]["content"]) in FORM["json_schema"]["schema"]["enum"]  # type: ignore[index]


@pytest.mark.parametrize("speculate", [0, 5])
async def test_budgets_amid_kills(tmp_path: Path, speculate: int) -> None:
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": TEMPLATE}))
    dice = random.Random(speculate)
    asked = bodies(random.Random(0))
    flags = ("--tokenizer-config-path", str(config), "--num-shard", "2", "--kv-memory", "64MiB", "--speculate",
             str(speculate))
    with serve(tmp_path, *flags) as server:
        async with many_clients() as session:
            calm = await asyncio.gather(*(streamed(session, server, body) for body in asked))
            for body, chunks in zip(asked, calm, strict=True):
                check(body, chunks)
            await check_beams(session, server)
            again = asyncio.gather(*(streamed(session, server, body) for body in asked))
            for _ in range(2):
                await asyncio.sleep(0.3)
                os.kill(server.shards()[0].pid, signal.SIGKILL)
                await asyncio.to_thread(server.wait_until_healthy)
            for chunks, others in zip(calm, await again, strict=True):
                assert told(chunks)[0] == told(others)[0]
            for body, chunks in zip(asked[:6], calm, strict=False):
                place = dice.randrange(len(chunks) - 2)
                rest = await streamed(session, server, body, after=chunks[place][0])
                assert told(rest)[0] == told(chunks)[0][place + 1:]
