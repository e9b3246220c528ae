"""The cost of an agent's turns in the router, and the share of their prompts that comes from the cache.

cache: an agent of many turns with ten tools, through each API: how much of each turn's prompt the prefix cache had.
first: the time to the first token of a turn behind few and behind many cached words. parsers: how long it takes to
look for thoughts and calls in the text of a token, beside the router's processor time for the token.

The shard is a script that answers at once, so that the router alone is measured. The chat template is in Hermes'
form, the tokenizer the demo model's.
"""

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import click

from penstock.bench.programs.children import Child, exit_on_sigterm, free_port
from penstock.bench.programs.peers import ServerCommand
from penstock.bench.programs.root import DEMO_MODEL
from penstock.bench.server.cell import SCRIPTED
from penstock.bench.server.running import running
from penstock.bench.turns.agent import APIS, TEMPLATE, Agent, make_agent
from penstock.bench.turns.asking import ask, first_token, router_seconds
from penstock.bench.turns.parsers import parser_seconds
from penstock.bench.turns.report import show_cache, show_first, show_parsers

PARTS = ("cache", "first", "parsers")
TURNS, ROUNDS = 30, 15
FEW, MANY = 200, 20_000
"""The cached words behind which a turn's first token is timed."""
STREAMS, SHORT, LONG = 32, 8, 408
"""The streams at once whose tokens are timed, and how many tokens each has: the difference is what is counted."""
LIMITS = ["--max-input-tokens", "65000", "--max-total-tokens", "65536", "--max-concurrent-requests", "64"]


@contextmanager
def scripted_server(answers: dict[str, str] | None = None, flags: Sequence[str] = ()) -> Iterator[tuple[Child, int]]:
    """Starts a server of a model that answers by what stands last in a prompt, or goes round in its vocabulary; yields
    it with its port."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        model.mkdir()
        for file in DEMO_MODEL.iterdir():
            (model / file.name).symlink_to(file)
        (model / "chat_template.jinja").unlink()
        (model / "chat_template.jinja").write_text(TEMPLATE)
        environment = {}
        if answers is not None:
            script = Path(folder) / "script.json"
            script.write_text(json.dumps({"tokenizer": str(DEMO_MODEL / "tokenizer.json"), "answers": answers}))
            environment["KERNELS_SCRIPT"] = str(script)
        command = [*SCRIPTED, "serve", str(model), "--hostname", "127.0.0.1", "--port", str(port), *LIMITS, *flags]
        with running(ServerCommand("Penstock", command, environment), port) as child:
            yield child, port


def measure_cache(agent: Agent, flags: Sequence[str]) -> None:
    """Prints the share of the prompts that came from the cache, through each API on a server of its own."""
    for name, api in APIS.items():
        with scripted_server(agent.answers, flags) as (_, port):
            usages = [api.usage(ask(port, api.path, api.body(agent, turn))["usage"])
                      for turn in range(len(agent.steps) + 1)]
        show_cache(name, usages)


def measure_first(rounds: int, flags: Sequence[str]) -> None:
    """Prints the time to the first token of turns behind few and behind many cached words, in turns."""
    agents = {number: make_agent(rounds + 2, seed=number, num_system_words=number, num_tools=0)
              for number in (FEW, MANY)}
    with scripted_server(None, flags) as (_, port):
        for name, api in APIS.items():
            found: dict[int, list[float]] = {FEW: [], MANY: []}
            for turn in range(rounds + 2):
                for number, agent in agents.items():
                    found[number].append(first_token(port, api.path, api.body(agent, turn) | {"stream": True}))
            show_first(name, {number: times[2:] for number, times in found.items()})


def measure_parsers(rounds: int, flags: Sequence[str]) -> None:
    """Prints the time that parsers take for a token beside the processor time that the router takes for it."""
    body = APIS["chat"].body(make_agent(1, num_system_words=20, num_tools=0), 0) | {"stream": True, "ignore_eos": True}
    found = []
    with scripted_server(None, flags) as (child, port):
        for _ in range(rounds + 1):
            short, long = (router_seconds(child, port, APIS["chat"].path, body | {"max_tokens": length}, STREAMS)
                           for length in (SHORT, LONG))
            found.append((long - short) / STREAMS / (LONG - SHORT))
    show_parsers(median(found[1:]), parser_seconds())


@click.command(help=__doc__)
@click.argument("parts", nargs=-1, type=click.Choice(PARTS))
@click.option("--rounds", type=click.IntRange(1), help=f"Of the parts first and parsers.  [default: {ROUNDS}]")
@click.option("--flag", "flags", multiple=True, help="A flag of the launcher, such as --flag=--api-workers=2.")
def main(parts: Sequence[str], rounds: int | None, flags: Sequence[str]) -> None:
    if rounds is not None and {*parts} == {"cache"}:
        raise click.UsageError("--rounds is for first and parsers")
    exit_on_sigterm()
    for part in parts or PARTS:
        if part == "cache":
            measure_cache(make_agent(TURNS), flags)
        elif part == "first":
            measure_first(rounds or ROUNDS, flags)
        else:
            measure_parsers(rounds or ROUNDS, flags)
