"""Asks a server, and takes the time until its answer begins, or the processor time that the router takes for it."""

import asyncio
import json
import time
from http.client import HTTPConnection
from typing import Any

import click

from penstock.bench.programs.children import Child
from penstock.bench.server.router_speed import stream, written

SECONDS = 120.0


def ask(port: int, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Returns a whole answer. Raises ClickException for a refusal."""
    connection = HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    response = connection.getresponse()
    answer: dict[str, Any] = json.loads(response.read())
    connection.close()
    if response.status != 200:
        raise click.ClickException(f"{path} answers {response.status}: {json.dumps(answer):.500}")
    return answer


def first_token(port: int, path: str, body: dict[str, Any]) -> float:
    """Returns the seconds until the first event of a stream that brings a token."""
    connection = HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    data = json.dumps(body)
    connection.connect()
    begin = time.perf_counter()
    connection.request("POST", path, data, {"content-type": "application/json"})
    response = connection.getresponse()
    while line := response.readline():
        if line.startswith(b"data:") and (b'"delta"' in line or b'"choices"' in line):
            seconds = time.perf_counter() - begin
            response.read()
            connection.close()
            return seconds
    raise click.ClickException(f"{path} answers {response.status}, without a token")


def router_seconds(child: Child, port: int, path: str, body: dict[str, Any], streams: int) -> float:
    """Returns the processor seconds that the router takes for so many streams at once."""
    request = written(path, json.dumps(body), "*/*")

    async def run() -> None:
        await asyncio.gather(*(stream(port, request) for _ in range(streams)))

    before = child.cpu_seconds("router")
    asyncio.run(run())
    return child.cpu_seconds("router") - before
