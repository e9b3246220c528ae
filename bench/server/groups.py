"""Measures the gain and cost of several groups behind one router: `python -m penstock.bench.server.groups PART…`.

kills: streams run on two groups, the busier of which loses its shard, again and again: how many answers were whole and
equal to those of an undisturbed run, and the longest gap between two tokens of each stream. prefixes: requests that
share prefixes, on one group and on four: how many prompt tokens were found in the prefix caches, and how busy the
busiest group was. cost: the time to the first token of a lone request, and that from token to token of many streams,
with shards that are scripts of which every step takes as long, on one group and on four, in turns.
"""

import asyncio
import itertools
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any

import aiohttp
import click

from penstock.bench.load.prompts import COMMON_WORDS
from penstock.bench.programs.children import exit_on_sigterm
from penstock.bench.programs.peers import DIRECTORY
from penstock.bench.programs.root import DEMO_MODEL
from penstock.bench.server.cell import SCRIPTED, Cell, cell
from penstock.bench.server.router_speed import WARM_UP, measure

PARTS = ("kills", "prefixes", "cost")
KILL_AFTER = (0.1, 0.7)
"""The seconds from a round's first token to the kill."""
PREFIXES, REQUESTS, PREFIX_WORDS, OWN_WORDS, NEW = 16, 384, 300, 16, 48
"""Of the load with shared prefixes: how many there are, how many requests, and their words and tokens."""
AT_ONCE = 32
MANY, LONE, STEP_SECONDS = 64, 20, 0.02
"""Of the cost: streams at once, lone requests of a round, and how long the shards take for a step."""
LOOK_SECONDS = 0.1


@dataclass(slots=True)
class Streamed:
    """One stream's tokens with their logprobs, and when each came."""

    tokens: list[tuple[int, float]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    is_whole: bool = False

    def longest_gap(self, killed_at: float = inf) -> float:
        """Returns the longest time from one token to the next, where the first follows a kill before it; that of a
        stream which is not whole has no end."""
        moments = [killed_at, *self.times] if self.times and killed_at < self.times[0] else self.times
        return max((b - a for a, b in itertools.pairwise(moments)), default=0.0) if self.is_whole else inf


async def stream(session: aiohttp.ClientSession, body: dict[str, Any], first: asyncio.Event | None = None) -> Streamed:
    """Sends a request, and notes its tokens; sets `first` when the first has come."""
    found = Streamed()
    async with session.post("/generate_stream", json=body) as response:
        async for line in response.content:
            if not line.startswith(b"data:"):
                continue
            event = json.loads(line[5:])
            if "token" not in event:
                break
            found.times.append(time.perf_counter())
            found.tokens.append((event["token"]["id"], event["token"]["logprob"]))
            found.is_whole = event["generated_text"] is not None
            if first is not None:
                first.set()
    return found


def _session(made: Cell) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(made.url, connector=aiohttp.TCPConnector(limit=0),
                                 timeout=aiohttp.ClientTimeout(total=None))


async def kill(made: Cell, bodies: Sequence[dict[str, Any]], delay: float) -> tuple[list[Streamed], float]:
    """Runs all streams, of whose groups the busiest loses its shard on the way; returns them, and when it did."""
    first = asyncio.Event()
    async with _session(made) as session, asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(stream(session, body, first)) for body in bodies]
        await first.wait()
        await asyncio.sleep(delay)
        series = await asyncio.to_thread(made.series)
        name = max(made.groups, key=lambda name: series[f'penstock_group_batch_size{{group="{name}"}}'])
        shard = next(each for each in made.groups[name].family() if "penstock.shard" in each.cmdline())
        killed_at = time.perf_counter()
        shard.kill()
    await asyncio.to_thread(made.wait_until_serving, len(made.groups))
    return [task.result() for task in running], killed_at


async def undisturbed(made: Cell, bodies: Sequence[dict[str, Any]]) -> list[Streamed]:
    async with _session(made) as session:
        return await asyncio.gather(*(stream(session, body) for body in bodies))


def measure_kills(model: Path, kills: int, streams: int, groups: int) -> None:
    """Prints how many of all streams were whole and equal, and their longest gaps."""
    drawn = random.Random(0)
    bodies = [{"inputs": "".join(drawn.choices(COMMON_WORDS, k=40)), "parameters": {
        "max_new_tokens": 300, "do_sample": number % 2 == 1, "seed": number}} for number in range(streams)]
    with cell(model, groups) as made:
        wanted = asyncio.run(undisturbed(made, bodies))
        calm = [each.longest_gap() for each in asyncio.run(undisturbed(made, bodies))]
        rounds = [asyncio.run(kill(made, bodies, drawn.uniform(*KILL_AFTER))) for _ in range(kills)]
        series = made.series()
    every = [each for streamed, _ in rounds for each in streamed]
    equal = sum(each.is_whole and each.tokens == want.tokens
                for each, want in zip(every, itertools.cycle(wanted), strict=False))
    gaps = [each.longest_gap(killed_at) for streamed, killed_at in rounds for each in streamed]
    rare = quantiles(gaps, n=100, method="inclusive")[-1]
    moved = series['penstock_moved_requests_total{cause="lost"}']
    print(f"kills: {len(every)} streams on {groups} groups, {kills} kills: {equal} whole and equal, {moved:.0f} moved; "
          f"longest gap of a stream p50 {median(gaps):.2f}, p99 {rare:.2f}, most "
          f"{max(gaps):.2f} s; undisturbed p50 {median(calm):.2f}, most {max(calm):.2f} s", flush=True)
    if equal < len(every):
        raise click.ClickException(f"{len(every) - equal} streams were lost or changed")


async def share_prefixes(made: Cell) -> tuple[float, list[float]]:
    """Runs the load with shared prefixes; returns how many prompt tokens were found in caches, and the mean blocks that
    each group held."""
    drawn = random.Random(1)
    prefixes = ["".join(drawn.choices(COMMON_WORDS, k=PREFIX_WORDS)) for _ in range(PREFIXES)]
    prompts = [drawn.choice(prefixes) + "".join(drawn.choices(COMMON_WORDS, k=OWN_WORDS)) for _ in range(REQUESTS)]
    turns, held = asyncio.Semaphore(AT_ONCE), [[0.0] for _ in made.groups]

    async def ask(prompt: str) -> None:
        async with turns:
            await stream(session, {"inputs": prompt, "parameters": {"max_new_tokens": NEW}})

    async def look() -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            series = await asyncio.to_thread(made.series)
            for blocks, name in zip(held, made.groups, strict=True):
                blocks.append(series[f'penstock_group_kv_blocks{{group="{name}",state="used"}}'])

    async with _session(made) as session:
        looking = asyncio.create_task(look())
        await asyncio.gather(*map(ask, prompts))
        looking.cancel()
    return made.series()["penstock_prefix_hit_tokens_total"], [mean(blocks) for blocks in held]


def measure_prefixes(model: Path, groups: int) -> None:
    """Prints the cache hits of several groups beside those of one, and how evenly they are loaded."""
    found = {}
    for number in (1, groups):
        with cell(model, number) as made:
            found[number] = asyncio.run(share_prefixes(made))
            series = made.series()
    hits, loads = found[groups]
    chosen = {reason: series[f'penstock_choice{{reason="{reason}"}}'] for reason in ("prefix", "load")}
    print(f"prefixes: {REQUESTS} requests of {PREFIXES} prefixes, {AT_ONCE} at once: {hits:.0f} tokens found on "
          f"{groups} groups, {found[1][0]:.0f} on one, × {hits / found[1][0]:.3f}; busiest group × "
          f"{max(loads) / mean(loads):.2f} of the mean load; chosen by prefix {chosen['prefix']:.0f}, by load "
          f"{chosen['load']:.0f}", flush=True)


def measure_cost(model: Path, groups: int, rounds: int) -> None:
    """Prints the time of a lone request to its first token, and that from token to token of many streams, on one group
    and on several."""
    flags, slow = ["--max-concurrent-requests", str(MANY)], {"KERNELS_STEP_SECONDS": str(STEP_SECONDS)}
    with (cell(model, 1, flags, flags, SCRIPTED, slow) as one,
          cell(model, groups, flags, flags, SCRIPTED, slow) as several):
        cells = (one, several)
        for path in ("/generate_stream", "/v1/completions"):
            for made in cells:
                measure(made.router, made.port, path, WARM_UP, 20, "*/*")
            lone = [[measure(made.router, made.port, path, 1, 2, "*/*").first_seconds for made in cells]
                    for _ in range(LONE * rounds)]
            many = [[measure(made.router, made.port, path, MANY, 100, "*/*") for made in cells] for _ in range(rounds)]
            firsts = [1e3 * median(each) for each in zip(*lone, strict=True)]
            gaps = [1e3 * median((run.seconds - run.first_seconds) / 99 for run in each)
                    for each in zip(*many, strict=True)]
            spent = [1e6 * median(run.engine_seconds / run.tokens for run in each) for each in zip(*many, strict=True)]
            print(f"cost: {path}: first token {firsts[0]:.2f} ms on one group, {firsts[1]:.2f} on {groups}; {MANY} "
                  f"streams: {gaps[0]:.2f} and {gaps[1]:.2f} ms from token to token, × {gaps[1] / gaps[0]:.3f}, for "
                  f"which the router computes {spent[0]:.0f} and {spent[1]:.0f} µs", flush=True)


@click.command(help=__doc__)
@click.argument("parts", nargs=-1, type=click.Choice(PARTS))
@click.option("--model-id", type=DIRECTORY, default=DEMO_MODEL, help="A directory.  [default: the demo model]")
@click.option("--groups", type=click.IntRange(2), help="How many groups.  [default: 2 for kills, else 4]")
@click.option("--kills", type=click.IntRange(1), default=20, show_default=True)
@click.option("--streams", type=click.IntRange(2), default=16, show_default=True)
@click.option("--rounds", default=7, show_default=True)
def main(parts: Sequence[str], model_id: Path, groups: int | None, kills: int, streams: int, rounds: int) -> None:
    exit_on_sigterm()
    for part in parts or PARTS:
        if part == "kills":
            measure_kills(model_id, kills, streams, groups or 2)
        elif part == "prefixes":
            measure_prefixes(model_id, groups or 4)
        else:
            measure_cost(model_id, groups or 4, rounds)


if __name__ == "__main__":
    main()
