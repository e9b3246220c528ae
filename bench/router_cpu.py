"""What a streamed token costs the router, by route: `python -m penstock.bench.router_cpu`.

A server runs on the demo model. The routes take turns, each with so many streams at once; what counts is the processor
time of the router's process, for the machine's other work does not show in it.
"""

import asyncio
import statistics
import tempfile
from pathlib import Path

import aiohttp
import click
import psutil

from tests.e2e.server import serve

PROMPT = "Once upon a time"
ROUTES = {
    "/generate_stream": lambda new: {"inputs": PROMPT, "parameters": {"max_new_tokens": new, "ignore_eos": True}},
    "/v1/completions": lambda new: {
        "prompt": PROMPT, "max_tokens": new, "ignore_eos": True, "temperature": 0, "stream": True},
}


def cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


async def count_events(session: aiohttp.ClientSession, route: str, new: int) -> int:
    """Of one stream, beside the mark of its end."""
    async with session.post(route, json=ROUTES[route](new)) as response:
        data = await response.read()
    if response.status != 200 or b'"error"' in data:
        raise click.ClickException(f"{route}: {data[-500:]!r}")
    return data.count(b"data: {")


async def measure(url: str, router: psutil.Process, streams: int, new: int, rounds: int) -> dict[str, list[float]]:
    """Seconds per 1,000 tokens, by route and round."""
    costs: dict[str, list[float]] = {route: [] for route in ROUTES}
    async with aiohttp.ClientSession(url) as session:
        await asyncio.gather(*(count_events(session, route, new) for route in ROUTES))
        for _ in range(rounds):
            for route, seconds in costs.items():
                before = cpu_seconds(router)
                counts = await asyncio.gather(*(count_events(session, route, new) for _ in range(streams)))
                assert counts == [new] * streams
                seconds.append(1000 * (cpu_seconds(router) - before) / sum(counts))
    return costs


@click.command(help=__doc__)
@click.option("--streams", default=16, show_default=True)
@click.option("--new", default=500, show_default=True, help="Tokens of each answer.")
@click.option("--rounds", default=5, show_default=True)
def main(streams: int, new: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as server:
        router, = server.children("router")
        costs = asyncio.run(measure(server.url, router, streams, new, rounds))
    medians = {route: statistics.median(seconds) for route, seconds in costs.items()}
    for route, seconds in costs.items():
        print(f"{route:20} {1e3 * medians[route]:7.1f} ms per 1,000 tokens, "
              f"from {1e3 * min(seconds):.1f} to {1e3 * max(seconds):.1f}")
    first, second = medians.values()
    print(f"the second costs {second / first - 1:+.1%}")


if __name__ == "__main__":
    main()
