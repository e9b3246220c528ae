"""Compares plans with a server on this machine: `penstock bench plan`.

It measures the cost of steps of MODEL and sends it traffic, in turns, simulates the same traffic by that cost, and
shows both. MODEL is a directory; without one it is the demo model, in a checkout of Penstock. Nothing else should run
meanwhile.
"""

import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median

import click
from tqdm import tqdm

from penstock.bench.load.generator import Concurrency, Pace, Rate
from penstock.bench.load.measurement import Run
from penstock.bench.planning.costs import Measured, decode_work, prompt_work
from penstock.bench.planning.fitting import Observation, fit
from penstock.bench.planning.measuring import FIRST_SEED, Served, observe, scripted, served
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


def compare(name: str, outcome: Outcome, run: Run) -> list[Line]:
    """Returns the figures of one traffic; times are in milliseconds. Clients fall into step with each other, and those
    of one step get their first tokens together: which of two such times is the median is chance, so the mean counts."""
    return [
        Line(f"{name}: tokens/s", outcome.tokens_per_second, run.tokens_per_second),
        Line(f"{name}: first token, mean, ms", 1e3 * fmean(one.first_after for one in outcome.answered),
             fmean(run.values("ttft"))),
        *(Line(f"{name}: first token, p{percent}, ms", 1e3 * outcome.first_token(percent),
               run.percentile("ttft", percent)) for percent in (() if run.pace == Concurrency.name else (50, 90))),
        Line(f"{name}: per token, p50, ms", 1e3 * outcome.per_token(50), run.percentile("tpot", 50))]


def medians(rounds: Sequence[Sequence[Line]]) -> list[Line]:
    """Returns the figures that are in the middle of those of several rounds."""
    return [Line(same[0].name, median(line.planned for line in same), median(line.measured for line in same))
            for same in zip(*rounds, strict=True)]


def plan(server: Served, cost: Measured, traffic: Traffic, added: int) -> Outcome:
    """Simulates traffic. added: tokens that the server puts before each prompt"""
    planned = replace(traffic, prompt=traffic.prompt + added)
    return Simulation(planned, Room(SLOTS, server.kv_tokens, BLOCK_SIZE), cost).run()


def send(server: Served, traffic: Traffic) -> Run:
    pace: Pace = Concurrency(traffic.clients) if traffic.clients else Rate(traffic.rate, traffic.seed)
    return server.send(pace, traffic.prompt, traffic.answer, traffic.number, traffic.seed)


def try_out(
    server: Served, prompt: int, answer: int, rate: float | None, clients: int, requests: int, rounds: int
) -> list[Line]:
    """Returns the figures of two kinds of traffic, by a plan and as they were sent. The steps are measured between
    these, for a machine's speed changes meanwhile."""
    added, seeds = server.added_tokens(), itertools.count(FIRST_SEED)
    observations: list[Observation] = []
    sent: list[tuple[Traffic, Run]] = []
    for number in tqdm(range(rounds), unit="round", leave=False):
        observations += observe(server, seeds)
        rate = rate or moderate_rate(fit(observations), prompt, answer)
        for traffic in (Traffic(prompt, answer, rate=rate, number=requests, seed=2 * number),
                        Traffic(prompt, answer, clients=clients, number=requests, seed=2 * number + 1)):
            sent.append((traffic, send(server, traffic)))
    cost = fit(observations)
    click.echo(describe(cost))
    lines = [compare(f"{traffic.clients} clients" if traffic.clients else f"{traffic.rate:.3g} requests/s",
                     plan(server, cost, traffic, added), run) for traffic, run in sent]
    return [*medians(lines[::2]), *medians(lines[1::2])]


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
@click.option("--requests", type=click.IntRange(10), default=100, show_default=True,
              help="Of each traffic in each round.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="In each, steps are measured, and "
              "both traffics are sent.")
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
        lines = try_out(server, prompt, answer, rate, clients, requests, rounds)
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
