"""Measures the cost of a streamed token to the router, by route: `python -m penstock.bench.server.router_cpu`.

A server runs on the demo model. The routes take turns, each with so many streams at once; what counts is the processor
time of the router's process, for the machine's other work does not show in it.
"""

import asyncio
import statistics

import click

from penstock.bench.load.apis import APIS, Prompt
from penstock.bench.load.client import Target
from penstock.bench.load.generator import Concurrency, generate_load
from penstock.bench.programs.children import Child, exit_on_sigterm, free_port
from penstock.bench.programs.peers import own_server
from penstock.bench.programs.root import DEMO_MODEL
from penstock.bench.server.running import running

ROUTES = ("tgi", "openai")


def measure(child: Child, target: Target, streams: int, new: int) -> float:
    """Returns the router's seconds per 1,000 tokens. Raises ClickException if some are missing."""
    before = child.cpu_seconds("router")
    prompts = [Prompt("Once upon a time", new)] * streams
    run = asyncio.run(generate_load(target, Concurrency(streams), prompts))
    if run.num_tokens != streams * new:
        raise click.ClickException(f"{run.num_tokens} tokens; failed: {run.failures[:1]}")
    return 1000 * (child.cpu_seconds("router") - before) / run.num_tokens


@click.command(help=__doc__)
@click.option("--streams", default=16, show_default=True)
@click.option("--new", default=500, show_default=True, help="Tokens of each answer.")
@click.option("--rounds", default=5, show_default=True)
def main(streams: int, new: int, rounds: int) -> None:
    exit_on_sigterm()
    port = free_port()
    targets = {APIS[name].path(is_streamed=True): Target(
        f"http://127.0.0.1:{port}", APIS[name], fields={"ignore_eos": True}) for name in ROUTES}
    costs: dict[str, list[float]] = {route: [] for route in targets}
    with running(own_server(DEMO_MODEL, port, []), port) as child:
        for target in targets.values():
            measure(child, target, 1, new)
        for _ in range(rounds):
            for route, target in targets.items():
                costs[route].append(measure(child, target, streams, new))
    medians = {route: statistics.median(seconds) for route, seconds in costs.items()}
    for route, seconds in costs.items():
        print(f"{route:20} {1e3 * medians[route]:7.1f} ms per 1,000 tokens, "
              f"from {1e3 * min(seconds):.1f} to {1e3 * max(seconds):.1f}")
    first, second = medians.values()
    print(f"the second costs {second / first - 1:+.1%}")


if __name__ == "__main__":
    main()
