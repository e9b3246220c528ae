"""Compares plans with a server on this machine: `penstock bench plan`.

It measures the cost of steps of MODEL, simulates traffic by it, sends the same traffic, and shows both. MODEL is a
directory; without one it is the demo model, in a checkout of Penstock. Nothing else should run meanwhile.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import click

from penstock.bench.load.generator import Concurrency, Pace, Rate
from penstock.bench.load.measurement import Run
from penstock.bench.planning.costs import Measured, decode_work, prompt_work
from penstock.bench.planning.measuring import Served, measure, scripted, served
from penstock.bench.planning.report import aligned
from penstock.bench.planning.simulation import Outcome, Room, Simulation
from penstock.bench.planning.traffic import Traffic
from penstock.bench.programs.children import exit_on_sigterm
from penstock.bench.programs.peers import DIRECTORY
from penstock.bench.programs.root import DEMO_MODEL

SLOTS = 128
BLOCK_SIZE = 16
LOAD = 0.6
"""The share of the time for which a server computes at the rate that is chosen for it."""


@dataclass(frozen=True)
class Line:
    """One figure, as it was planned and as it was measured."""

    name: str
    planned: float
    measured: float

    @property
    def ratio(self) -> float:
        return self.planned / self.measured


def compare(name: str, outcome: Outcome, run: Run) -> Iterator[Line]:
    """Yields the figures of one traffic; times are in milliseconds. Clients fall into step with each other, and those
    of one step get their first tokens together: which of two such times is the median is chance, so the mean counts."""
    yield Line(f"{name}: tokens/s", outcome.tokens_per_second, run.tokens_per_second)
    yield Line(f"{name}: first token, mean, ms", 1e3 * fmean(one.first_after for one in outcome.answered),
               fmean(run.values("ttft")))
    for percent in () if run.pace == Concurrency.name else (50, 90):
        yield Line(f"{name}: first token, p{percent}, ms", 1e3 * outcome.first_token(percent),
                   run.percentile("ttft", percent))
    yield Line(f"{name}: per token, p50, ms", 1e3 * outcome.per_token(50), run.percentile("tpot", 50))


def try_out(server: Served, cost: Measured, traffic: Traffic, name: str, added: int) -> list[Line]:
    """Simulates traffic, sends it, and returns the figures of both. added: tokens that the server puts before each
    prompt"""
    planned = Traffic(traffic.prompt + added, traffic.answer, traffic.rate, traffic.clients, traffic.number,
                      seed=traffic.seed)
    outcome = Simulation(planned, Room(SLOTS, server.kv_tokens, BLOCK_SIZE), cost).run()
    pace: Pace = Concurrency(traffic.clients) if traffic.clients else Rate(traffic.rate, traffic.seed)
    run = server.send(pace, traffic.prompt, traffic.answer, traffic.number, traffic.seed)
    return list(compare(name, outcome, run))


def moderate_rate(cost: Measured, prompt: int, answer: int) -> float:
    """Returns the requests a second of which a server computes for LOAD of the time, with 8 answers at once."""
    decode = cost.seconds(decode_work(8, prompt + answer // 2)) / 8
    return LOAD / (cost.seconds(prompt_work(prompt)) + answer * decode)


@click.command(help=__doc__)
@click.argument("model", type=DIRECTORY, required=False, default=DEMO_MODEL)
@click.option("--flag", "flags", multiple=True, help="Of the launcher, such as --flag=--num-shard=2; may be repeated.")
@click.option("--step-seconds", type=click.FloatRange(0, min_open=True), help="In the place of the shards take a "
              "script whose steps take so long: what is compared is then the plan of steps alone.")
@click.option("--prompt", type=click.IntRange(1), default=128, show_default=True, help="Tokens of each prompt.")
@click.option("--answer", type=click.IntRange(2), default=64, show_default=True, help="Tokens of each answer.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Requests a second.  [default: what keeps the "
              "server at work for about 0.6 of the time]")
@click.option("--clients", type=click.IntRange(1), default=16, show_default=True,
              help="Of the second traffic: each sends a request when its last one is answered.")
@click.option("--requests", type=click.IntRange(10), default=200, show_default=True, help="Of each traffic.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Of the measurement of steps.")
@click.option("--within", type=click.FloatRange(0, min_open=True), default=0.15, show_default=True,
              help="The difference that the exit code 1 tells of.")
def main(
    model: Path, flags: tuple[str, ...], step_seconds: float | None, prompt: int, answer: int, rate: float | None,
    clients: int, requests: int, rounds: int, within: float,
) -> None:
    if flags and step_seconds is not None:
        raise click.UsageError("--flag is not for --step-seconds, whose shards are scripts")
    exit_on_sigterm()
    with served(model, flags) if step_seconds is None else scripted(model, step_seconds) as server:
        cost = measure(server, rounds)
        click.echo(describe(cost))
        rate = rate or moderate_rate(cost, prompt, answer)
        added = server.added_tokens()
        lines = [*try_out(server, cost, Traffic(prompt, answer, rate=rate, number=requests), f"{rate:.3g} requests/s",
                          added),
                 *try_out(server, cost, Traffic(prompt, answer, clients=clients, number=requests, seed=1),
                          f"{clients} clients", added)]
    rows = [["", "planned", "measured", "planned ÷ measured"],
            *([line.name, f"{line.planned:.2f}", f"{line.measured:.2f}", f"{line.ratio:.2f}"] for line in lines)]
    click.echo("\n".join(aligned(rows)))
    off = [line.name for line in lines if abs(line.ratio - 1) > within]
    if off:
        click.echo(f"more than {within:.0%} apart: {', '.join(off)}")
        sys.exit(1)


def describe(cost: Measured) -> str:
    """Returns the parts of a measured cost as a sentence."""
    return (f"a step takes {1e3 * cost.step:.3f} ms, and {1e6 * cost.sample:.1f} µs for each token that it samples, "
            f"{1e6 * cost.token:.2f} µs for each other token, {1e9 * cost.read:.1f} ns for each token of keys and "
            f"values that it reads, {1e9 * cost.pair:.2f} ns for each pair; a request takes "
            f"{1e3 * cost.request_seconds:.2f} ms before it runs")


if __name__ == "__main__":
    main()
