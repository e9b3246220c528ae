"""Measures the cost of a batch to everybody else: `python -m penstock.bench.server.beside_batch [MODEL] [FLAG ...]`.

Flags are the launcher's. Requests arrive at random at a rate, in turns without anything beside them and beside a batch
whose lines keep the server busy whenever nobody else does. For each round it prints the time to the first token and the
longest pause of the requests without the batch and with it, and how many lines were answered meanwhile; at last the
median of the rounds, for a machine that others use, too, holds up some of them. The goal is that the 99th percentile of
the time to the first token is at most 1.3 times as long.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import click

from penstock.bench.load.apis import APIS
from penstock.bench.load.client import Target
from penstock.bench.load.generator import Rate, generate_load
from penstock.bench.load.measurement import Measurement, percentile
from penstock.bench.load.prompts import RandomPrompts
from penstock.bench.programs.children import exit_on_sigterm, free_port
from penstock.bench.programs.peers import CHECKPOINT, own_server
from penstock.bench.programs.root import DEMO_MODEL
from penstock.bench.server.running import running

PERCENTILES = (50, 90, 99)
LINE_TOKENS = 64
ROUTE = "/v1/completions"
POLL_SECONDS = 0.1


@dataclass
class Cost:
    """The cost of a round: the measurements of its requests, and how many lines of a batch were answered beside them in
    how many seconds."""

    requests: list[Measurement] = field(default_factory=list)
    lines: int = 0
    seconds: float = 0.0

    def times(self, percent: float) -> tuple[float, float]:
        """Returns this percentile of the time to the first token, and of the longest pause, in milliseconds."""
        firsts = [each.first for each in self.requests if each.first is not None]
        return 1e3 * percentile(firsts, percent), 1e3 * percentile(
            [max(each.gaps, default=0.0) for each in self.requests], percent)


Pair = tuple[Cost, Cost]
"""The costs of a round, without a batch and beside one."""


class Batches:
    """Makes batches of `number` lines at a server."""

    def __init__(self, url: str, session: aiohttp.ClientSession, number: int) -> None:
        self._url, self._session, self._number = url, session, number
        self._prompts = RandomPrompts(128, seed=1)

    @asynccontextmanager
    async def running(self, cost: Cost) -> AsyncIterator[None]:
        """Runs the block while lines of a new batch are answered, then cancels it."""
        prompts = self._prompts.take(self._number)
        lines = [json.dumps({"custom_id": str(number), "method": "POST", "url": ROUTE, "body": {
            "prompt": prompt.text, "max_tokens": LINE_TOKENS, "ignore_eos": True}})
            for number, prompt in enumerate(prompts)]
        form = aiohttp.FormData({"purpose": "batch"})
        form.add_field("file", "\n".join(lines).encode(), filename="lines.jsonl")
        file = await self._ask("POST", "/v1/files", data=form)
        batch = await self._ask("POST", "/v1/batches", json={
            "input_file_id": file["id"], "endpoint": ROUTE, "completion_window": "24h"})
        place = f"/v1/batches/{batch['id']}"
        before = await self._until(place, lambda batch: batch["request_counts"]["completed"] > 0)
        began = time.monotonic()
        yield
        after = await self._ask("GET", place)
        cost.lines += after["request_counts"]["completed"] - before["request_counts"]["completed"]
        cost.seconds += time.monotonic() - began
        async with self._session.post(f"{self._url}{place}/cancel"):
            pass  # refused if the batch has just ended
        await self._until(place, lambda batch: batch["status"] in ("cancelled", "completed"))

    async def _until(self, place: str, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Returns a batch once something holds of it."""
        while True:
            batch = await self._ask("GET", place)
            if is_so(batch):
                return batch
            await asyncio.sleep(POLL_SECONDS)

    async def _ask(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """Returns a reply. Raises ClickException if it is an error."""
        async with self._session.request(method, self._url + path, **options) as response:
            content: dict[str, Any] = await response.json()
            if response.status != 200:
                raise click.ClickException(f"{method} {path}: {content['error']['message']}")
            return content


async def measure(
    url: str, rate: float, requests: int, rounds: int, lines: int, prompt_tokens: int, output_tokens: int
) -> list[Pair]:
    """Returns the cost of each round, without a batch and beside one. Raises ClickException if a request fails."""
    target = Target(url, APIS["tgi"], fields={"ignore_eos": True}, timeout=600.0)
    prompts = RandomPrompts(prompt_tokens)
    pairs: list[Pair] = []

    async def load(cost: Cost, seed: int) -> None:
        # The arrivals of a round are the same with and without the batch.
        run = await generate_load(target, Rate(rate, seed), prompts.take(requests, output_tokens))
        if run.failures:
            raise click.ClickException(f"a request failed: {run.failures[0]}")
        cost.requests += run.measurements

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:
        batches = Batches(url, session, lines)
        await load(Cost(), rounds)
        for number in range(rounds):
            alone, beside = Cost(), Cost()
            await load(alone, number)
            async with batches.running(beside):
                await load(beside, number)
            pairs.append((alone, beside))
            click.echo(f"round {number + 1}: " + row(99, pairs[-1:]))
    return pairs


def row(percent: float, pairs: Sequence[Pair]) -> str:
    """Returns the line that tells the medians of rounds of a percentile."""
    times = [(*alone.times(percent), *beside.times(percent)) for alone, beside in pairs]
    first, pause, later, longer = (median(each) for each in zip(*times, strict=True))
    ratios = [median(each) for each in zip(*((d[2] / d[0], d[3] / d[1]) for d in times), strict=True)]
    rate = median(beside.lines / beside.seconds for _, beside in pairs)
    return (f"p{percent:g}: first token {first:.1f} ms alone, {later:.1f} beside a batch, × {ratios[0]:.2f}; longest "
            f"pause {pause:.1f} and {longer:.1f} ms, × {ratios[1]:.2f}; {rate:.1f} lines/s")


@click.command(help=__doc__, context_settings={"ignore_unknown_options": True})
@click.argument("model", type=CHECKPOINT, default=DEMO_MODEL)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
@click.option("--rate", default=4.0, show_default=True, help="Requests a second.")
@click.option("--requests", default=100, show_default=True, help="In each round.")
@click.option("--rounds", default=5, show_default=True)
@click.option("--lines", default=2000, show_default=True, help="Of each batch.")
@click.option("--prompt-tokens", default=128, show_default=True, help="Of each request.")
@click.option("--output-tokens", default=32, show_default=True, help="Of each request.")
def main(
    model: Path, flags: tuple[str, ...], rate: float, requests: int, rounds: int, lines: int, prompt_tokens: int,
    output_tokens: int,
) -> None:
    exit_on_sigterm()
    port = free_port()
    with TemporaryDirectory() as folder, running(
            own_server(model, port, ["--data-dir", folder, *flags]), port):
        pairs = asyncio.run(measure(
            f"http://127.0.0.1:{port}", rate, requests, rounds, lines, prompt_tokens, output_tokens))
    for percent in PERCENTILES:
        click.echo(row(percent, pairs))


if __name__ == "__main__":
    main()
