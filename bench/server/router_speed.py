"""How many tokens a second the router streams, where the shard costs nothing: `python -m
penstock.bench.server.router_speed`.

The shard is a script that answers at once, and the client only counts events, so the router is what is measured: the
tokens a second that come, and the processor time that a token takes in the process with the engine and in those that
answer clients (`--flag=--api-workers=3`). It tells how many tokens a second the router streams on a machine with a core
for each, and others for shard and client: as many as the engine's process on its core, or as the others on theirs.
"""

import asyncio
import json
import time
from dataclasses import dataclass
from statistics import median

import click

from penstock.bench.programs.children import Child, exit_on_sigterm, free_port
from penstock.bench.programs.peers import ServerCommand
from penstock.bench.programs.root import DEMO_MODEL
from penstock.bench.server.cell import SCRIPTED
from penstock.bench.server.running import running

WARM_UP = 8
"""Streams of the round that is not measured."""
FRONT = '"role":"front"'
BODIES = {
    "/generate_stream": {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 0}},
    "/v1/completions": {"prompt": "Once upon a time", "max_tokens": 0, "stream": True, "ignore_eos": True}}


@dataclass(frozen=True)
class Streamed:
    """The result of a round: tokens of all streams, seconds until the last, processor seconds of the engine's process
    and of those that answer clients, and the median time to the first event."""

    tokens: int
    seconds: float
    engine_seconds: float
    front_seconds: float
    first_seconds: float


def written(path: str, body: str, accept: str) -> bytes:
    """Returns a request with a body of JSON, as it goes over the wire."""
    content = body.encode()
    return (f"POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"
            f"accept: {accept}\r\ncontent-length: {len(content)}\r\n\r\n").encode() + content


async def stream(port: int, request: bytes) -> tuple[int, float]:
    """Sends a request; returns how many events came, and after how many seconds the first."""
    begin, first = time.perf_counter(), 0.0
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    writer.write(request)
    events = 0
    while data := await reader.read(1 << 16):
        found = data.count(b"data:")
        first = first or (time.perf_counter() - begin if found else 0.0)
        events += found
    writer.close()
    return events, first


async def run_streams(port: int, path: str, streams: int, new: int, accept: str) -> tuple[int, float, float]:
    """Returns the events of all streams, the seconds that they took, and the median seconds to the first event."""
    request = written(path, json.dumps(BODIES[path]).replace(": 0", f": {new}"), accept)
    begin = time.perf_counter()
    found = await asyncio.gather(*(stream(port, request) for _ in range(streams)))
    seconds = time.perf_counter() - begin
    return sum(events for events, _ in found), seconds, median(first for _, first in found)


def measure(child: Child, port: int, path: str, streams: int, new: int, accept: str) -> Streamed:
    """Runs one round. Raises ClickException if tokens are missing."""
    before = router_seconds(child)
    tokens, seconds, first = asyncio.run(run_streams(port, path, streams, new, accept))
    if tokens < streams * new:
        raise click.ClickException(f"{tokens} events came of {streams * new} tokens: {child.output[-500:]}")
    engine, fronts = (now - then for now, then in zip(router_seconds(child), before, strict=True))
    return Streamed(streams * new, seconds, engine, fronts, first)


def router_seconds(child: Child) -> tuple[float, float]:
    """Returns the processor time of the process that has the engine, and of those that have not."""
    fronts = child.cpu_seconds("router", FRONT)
    return child.cpu_seconds("router") - fronts, fronts


@click.command(help=__doc__)
@click.option("--streams", default=256, show_default=True)
@click.option("--new", default=200, show_default=True, help="Tokens of each answer.")
@click.option("--rounds", default=5, show_default=True)
@click.option("--ids", "has_ids", is_flag=True, help="Also of streams whose events have ids.")
@click.option("--flag", "flags", multiple=True, help="A flag of the launcher, such as --flag=--api-workers=2.")
def main(streams: int, new: int, rounds: int, has_ids: bool, flags: tuple[str, ...]) -> None:
    exit_on_sigterm()
    port = free_port()
    command = [*SCRIPTED, "serve", str(DEMO_MODEL), "--hostname", "127.0.0.1", "--port", str(port),
               "--max-concurrent-requests", str(max(WARM_UP, streams)), *flags]
    with running(ServerCommand("Penstock", command, {}), port) as child:
        kinds = {"": "*/*", **({" with ids": "text/event-stream"} if has_ids else {})}
        for path in BODIES:
            measure(child, port, path, WARM_UP, new, "*/*")
            rows: dict[str, list[Streamed]] = {kind: [] for kind in kinds}
            for _ in range(rounds):  # in turns
                for kind, accept in kinds.items():
                    rows[kind].append(measure(child, port, path, streams, new, accept))
            for kind, found in rows.items():
                show(path + kind, found)


def show(name: str, found: list[Streamed]) -> None:
    """Prints the results of the rounds of a kind."""
    rates = sorted(each.tokens / each.seconds for each in found)
    engine = sorted(1e6 * each.engine_seconds / each.tokens for each in found)
    front = sorted(1e6 * each.front_seconds / each.tokens for each in found)
    print(f"{name:26} {median(rates):6.0f} tokens/s ({rates[0]:.0f} to {rates[-1]:.0f}); engine's process "
          f"{median(engine):.1f} µs a token ({engine[0]:.1f} to {engine[-1]:.1f}), API workers "
          f"{median(front):.1f} ({front[0]:.1f} to {front[-1]:.1f}), first token "
          f"{1e3 * median(each.first_seconds for each in found):.2f} ms", flush=True)


if __name__ == "__main__":
    main()
