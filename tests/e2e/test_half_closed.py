"""Clients that end their half of the connection, and clients that leave: over uvloop, whose transports differ."""

import asyncio
import json
from typing import Any

import pytest

from tests.e2e.client import many_clients, scrape, stream, until_idle, until_running
from tests.e2e.server import Server

INPUTS = "import os\n\n\ndef walk(path):\n"
LONG = {"max_new_tokens": 1900, "do_sample": True, "grammar": {"type": "regex", "value": "[a-z ]{9000}"}}
"""What no sampled end token makes short: such an answer lasts for 1,700 tokens."""
DROPPED = 'tgi_request_failure{err="dropped"}'


async def connect(
    server: Server, path: str, **parameters: Any
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Sends a request on a connection of its own."""
    body = json.dumps({"inputs": INPUTS, "parameters": {"details": True, **parameters}})
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
                 f"content-length: {len(body)}\r\n\r\n{body}".encode())
    await writer.drain()
    return reader, writer


def last_object(answer: bytes) -> dict[str, Any]:
    """The body of a plain answer, or the last event of a stream."""
    line = next(line for line in reversed(answer.splitlines()) if b"{" in line)
    found = json.loads(line[line.index(b"{"):])
    assert isinstance(found, dict)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/generate", "/generate_stream"])
async def test_a_half_closed_client_gets_its_whole_answer(server: Server, path: str) -> None:
    async with many_clients() as session:
        undisturbed = await stream(session, server.url, INPUTS, max_new_tokens=400)
        reader, writer = await connect(server, path, max_new_tokens=400)
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        assert last_object(answer)["generated_text"] == undisturbed.text
        assert answer.count(b'"token":') == (len(undisturbed.ids) if path == "/generate_stream" else 0)
        await until_idle(session, server.url)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/generate", "/generate_stream"])
async def test_clients_that_leave_free_their_slots(server: Server, path: str) -> None:
    async with many_clients() as session:
        before = (await scrape(session, server.url)).get(DROPPED, 0.0)
        leavers = [await connect(server, path, **LONG, seed=seed) for seed in range(8)]
        await until_running(session, server.url, len(leavers))
        for _, writer in leavers:
            writer.close()
        await until_running(session, server.url, 0)
        await until_idle(session, server.url)
        assert (await scrape(session, server.url))[DROPPED] - before == len(leavers)
