"""Whether answers outlive those who compute them: `python -m penstock.bench.server.deaths SCENARIO`.

router: many requests of all kinds run while the process of the router is killed now and then. server: the same while
one of two whole servers behind a balancer is killed for good. Then the same answers are asked for again by their names,
undisturbed, and compared bit by bit; told are how many came and were equal, how long both took, and after how many
seconds a router that was killed answered again.

shard: streams with long prompts of their own run on two shards, of which one is killed while all of them decode; a
second later a short new request comes. A stream has moved on for good at the end of its longest pause. Times count from
the first stream that moves, and are shares of what all the prompts took undisturbed, in the same run. At last come the
seconds that the new shards spent on each phase until they listened.

group: streams run on two groups, the busier of which loses its shard, again and again; told are how many answers were
whole and equal to those of an undisturbed run, and the longest gap between two tokens of each stream.
"""

import asyncio
import itertools
import json
import random
import re
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles

import click
import psutil

from penstock.bench.load.prompts import COMMON_WORDS, RandomPrompts, load_tokenizer
from penstock.bench.programs.balancer import Balancer
from penstock.bench.programs.children import Child, exit_on_sigterm, free_port
from penstock.bench.programs.peers import DIRECTORY, own_server
from penstock.bench.programs.root import DEMO_MODEL
from penstock.bench.server.cell import Cell, cell
from penstock.bench.server.disturbing import Killer, Streamed, Survival, ask_streams, measure, next_shard
from penstock.bench.server.running import running

DECODE_SECONDS, NEW_AFTER, NEW_PROMPT, NEW_TOKENS = 0.5, 1.0, 16, 8
"""How long all streams decode before a shard is killed; the seconds from then to a new request; its tokens."""
KILL_AFTER = (0.1, 0.7)
"""The seconds from a round's first token to the kill of a group's shard."""


@dataclass(frozen=True)
class Load:
    """The requests that run, and how often something dies, by the command's options."""

    model: Path
    requests: int
    at_once: int
    kills: int
    victim: str
    prompt: int
    new: int
    flags: tuple[str, ...]


def router(load: Load) -> None:
    """Kills processes of a server's router: all, or the first with the word `victim` in its arguments."""
    port = free_port()

    def routers() -> list[psutil.Process]:
        found = [process for process in child.family() if process.cmdline()[2:4] == ["-m", "penstock.router"]]
        return [process for process in found if any(load.victim in part for part in process.cmdline())][
            :1 if load.victim else None]

    url = f"http://127.0.0.1:{port}"
    with running(own_server(load.model, port, load.flags), port) as child:
        _tell(asyncio.run(_survive(url, url, routers, load, load.kills)))


def server(load: Load) -> None:
    """Kills all processes of the first of two servers, which does not come back."""
    async def survive() -> Survival:
        async with Balancer(ports) as balancer:
            return await _survive(balancer.url, f"http://127.0.0.1:{ports[1]}", children[0].family, load, 1)

    ports = [free_port() for _ in range(2)]
    with ExitStack() as stack:
        children = [stack.enter_context(running(own_server(load.model, port, load.flags), port, port == ports[0]))
                    for port in ports]
        found = asyncio.run(survive())
    _tell(found)


async def _survive(
    url: str, undisturbed_url: str, find: Callable[[], list[psutil.Process]], load: Load, kills: int
) -> Survival:
    killer = Killer(find, url, load.requests, kills)
    return (await measure(url, undisturbed_url, killer, load.requests, load.at_once))[2]


def _tell(found: Survival) -> None:
    print(json.dumps(asdict(found)), flush=True)
    if found.equal < found.requests:
        sys.exit(1)


def shard(load: Load) -> None:
    """Prints how long each kill of a shard delays the streams, and the phases of the new shards' start."""
    port, tokenizer = free_port(), load_tokenizer(str(load.model))
    source, short = RandomPrompts(load.prompt, tokenizer=tokenizer), RandomPrompts(NEW_PROMPT, 1, tokenizer)
    with running(own_server(load.model, port, ["--num-shard", "2", *load.flags]), port) as child:
        for _ in range(load.kills):
            bodies = [_greedy(str(each.text), load.new) for each in source.take(load.at_once, load.new)]
            [new] = [_greedy(str(each.text), NEW_TOKENS) for each in short.take(1, NEW_TOKENS)]
            print(json.dumps(asyncio.run(recover(f"http://127.0.0.1:{port}", child, bodies, new))), flush=True)
        print(json.dumps(phases(child.output)))


def _greedy(text: str, new: int) -> dict[str, object]:
    return {"inputs": text, "parameters": {"max_new_tokens": new, "ignore_eos": True}}


async def recover(
    url: str, child: Child, bodies: list[dict[str, object]], new: dict[str, object]
) -> dict[str, float]:
    """Runs the streams through one kill. Returns when the first and the last moved on, in seconds, and as shares of the
    time of all prompts when the median stream and the new request did. Raises ClickException if a stream fails."""
    streams, killed_at = await ask_streams(
        url, bodies, all, DECODE_SECONDS, lambda: next_shard(child), late=(NEW_AFTER, new))
    if failed := sum(not stream.is_whole for stream in streams):
        raise click.ClickException(f"{failed} of {len(streams)} streams failed")
    *streams, newest = streams
    prompts = max(stream.times[0] for stream in streams) - streams[0].start
    moved = sorted(stream.pause_end(killed_at) for stream in streams)
    return {"prompts": round(prompts, 2), "first": round(moved[0] - killed_at, 2),
            "last": round(moved[-1] - killed_at, 2), "median": round((median(moved) - moved[0]) / prompts, 3),
            "new": round((newest.times[0] - moved[0]) / prompts, 3)}


def phases(log: str) -> dict[str, float]:
    """Returns the median seconds of each phase of a new shard's start, by the log of a server whose group was started
    more than once."""
    starts = [dict(part.rsplit(" ", 1) for part in found.split(", "))
              for found in re.findall(r"shard-0: ready in .* s: (.*)", log)]
    return {name: round(median(float(start[name]) for start in starts[1:]), 2) for name in starts[0]}


def group(load: Load) -> None:
    """Prints how many of all streams were whole and equal, and their longest gaps."""
    drawn = random.Random(0)
    bodies: list[dict[str, object]] = [{"inputs": "".join(drawn.choices(COMMON_WORDS, k=40)), "parameters": {
        "max_new_tokens": 300, "do_sample": number % 2 == 1, "seed": number}} for number in range(load.at_once)]
    with cell(load.model, 2, ("--threads", "1", *load.flags)) as made:
        wanted, calm = (asyncio.run(ask_streams(made.url, bodies))[0] for _ in range(2))
        rounds = [_lose_a_shard(made, bodies, drawn.uniform(*KILL_AFTER)) for _ in range(load.kills)]
        moved = made.series()['penstock_moved_requests_total{cause="lost"}']
    tell_rounds(wanted, [each.longest_gap() for each in calm], rounds, moved)


def _lose_a_shard(made: Cell, bodies: list[dict[str, object]], delay: float) -> tuple[list[Streamed], float]:
    """Runs all streams, of whose groups the busiest loses its shard on the way; returns them, and when it did."""
    def busiest() -> psutil.Process:
        series = made.series()
        sizes = {name: series[f'penstock_group_batch_size{{group="{name}"}}'] for name in made.groups}
        return next_shard(made.groups[max(sizes, key=sizes.__getitem__)])

    found = asyncio.run(ask_streams(made.url, bodies, any, delay, busiest))
    made.wait_until_serving(len(made.groups))
    return found


def tell_rounds(
    wanted: list[Streamed], calm: list[float], rounds: list[tuple[list[Streamed], float]], moved: float
) -> None:
    """Prints the figures of all rounds. Raises ClickException if a stream was lost or changed."""
    every = [each for streams, _ in rounds for each in streams]
    equal = sum(each.is_whole and each.tokens == want.tokens
                for each, want in zip(every, itertools.cycle(wanted), strict=False))
    gaps = [each.longest_gap(killed_at) for streams, killed_at in rounds for each in streams]
    rare = quantiles(gaps, n=100, method="inclusive")[-1]
    print(f"kills: {len(every)} streams on 2 groups, {len(rounds)} kills: {equal} whole and equal, {moved:.0f} moved; "
          f"longest gap of a stream p50 {median(gaps):.2f}, p99 {rare:.2f}, most "
          f"{max(gaps):.2f} s; undisturbed p50 {median(calm):.2f}, most {max(calm):.2f} s", flush=True)
    if equal < len(every):
        raise click.ClickException(f"{len(every) - equal} streams were lost or changed")


SCENARIOS: dict[str, tuple[Callable[[Load], None], int, int]] = {
    "router": (router, 64, 5), "server": (server, 64, 1), "shard": (shard, 32, 3), "group": (group, 16, 20)}
"""By name: the scenario, how many requests it has at once, and how often something dies."""


@click.command(help=__doc__)
@click.argument("scenario", type=click.Choice(list(SCENARIOS)))
@click.option("--model-id", "model", type=DIRECTORY, default=DEMO_MODEL, help="A directory.  [default: the demo model]")
@click.option("--at-once", type=click.IntRange(2), help="[default: 64; shard: 32; group: 16]")
@click.option("--kills", type=click.IntRange(1), help="[default: router: 5; shard: 3; group: 20]")
@click.option("--requests", default=800, show_default=True, help="Of router and server.")
@click.option("--victim", default="", help="A word in the arguments of the one process of the router that is killed, "
              "such as '\"role\":\"front\"'.  [default: all are]")
@click.option("--prompt", default=1400, show_default=True, help="Tokens of each prompt of shard.")
@click.option("--new", default=400, show_default=True, help="Tokens of each answer of shard.")
@click.option("--flag", "flags", multiple=True, help="A flag of the server, such as --flag=--api-workers=2.")
def main(scenario: str, at_once: int | None, kills: int | None, **options: object) -> None:
    exit_on_sigterm()
    if scenario == "server" and kills not in (None, 1):
        raise click.UsageError("a server is killed once, for good: leave out --kills")
    run, usual_at_once, usual_kills = SCENARIOS[scenario]
    run(Load(at_once=at_once or usual_at_once, kills=kills or usual_kills, **options))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
