"""Measures the gain and cost of several groups behind one router: `python -m penstock.bench.server.groups PART…`.

prefixes: requests that share prefixes, on one group and on four: how many prompt tokens were found in the prefix
caches, and how busy the busiest group was. cost: the time to the first token of a lone request, and that from token to
token of many streams, with shards that are scripts of which every step takes as long, on one group and on four, in
turns.
"""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median

import click

from penstock.bench.load.prompts import COMMON_WORDS
from penstock.bench.programs.children import exit_on_sigterm
from penstock.bench.programs.peers import DIRECTORY
from penstock.bench.programs.root import DEMO_MODEL
from penstock.bench.server.cell import SCRIPTED, Cell, cell
from penstock.bench.server.disturbing import Streamed, ask_stream, steady_session
from penstock.bench.server.router_speed import WARM_UP, measure

PARTS = ("prefixes", "cost")
PREFIXES, REQUESTS, PREFIX_WORDS, OWN_WORDS, NEW = 16, 384, 300, 16, 48
"""Of the load with shared prefixes: how many there are, how many requests, and their words and tokens."""
AT_ONCE = 32
MANY, LONE, STEP_SECONDS = 64, 20, 0.02
"""Of the cost: streams at once, lone requests of a round, and how long the shards take for a step."""
LOOK_SECONDS = 0.1


async def share_prefixes(made: Cell) -> tuple[float, list[float]]:
    """Runs the load with shared prefixes; returns how many prompt tokens were found in caches, and the mean blocks that
    each group held."""
    drawn = random.Random(1)
    prefixes = ["".join(drawn.choices(COMMON_WORDS, k=PREFIX_WORDS)) for _ in range(PREFIXES)]
    prompts = [drawn.choice(prefixes) + "".join(drawn.choices(COMMON_WORDS, k=OWN_WORDS)) for _ in range(REQUESTS)]
    turns, held = asyncio.Semaphore(AT_ONCE), [[0.0] for _ in made.groups]

    async def ask(prompt: str) -> None:
        async with turns:
            await ask_stream(session, Streamed(), {"inputs": prompt, "parameters": {"max_new_tokens": NEW}})

    async def look() -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            series = await asyncio.to_thread(made.series)
            for blocks, name in zip(held, made.groups, strict=True):
                blocks.append(series[f'penstock_group_kv_blocks{{group="{name}",state="used"}}'])

    async with steady_session(made.url) as session:
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
@click.option("--groups", type=click.IntRange(2), default=4, show_default=True)
@click.option("--rounds", default=7, show_default=True)
def main(parts: Sequence[str], model_id: Path, groups: int, rounds: int) -> None:
    exit_on_sigterm()
    for part in parts or PARTS:
        if part == "prefixes":
            measure_prefixes(model_id, groups)
        else:
            measure_cost(model_id, groups, rounds)


if __name__ == "__main__":
    main()
