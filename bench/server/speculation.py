"""Measures the gain and cost of guessing tokens: two servers side by side, one that guesses and one that does not.

`python -m penstock.bench.server.speculation` sends each load to both in turns. *edits*: the answer repeats a text of
the prompt with a change in it. *fresh*: nothing of the answer was there before. *drafted*: as fresh, with a small draft
model that is right about four of five tokens, if there is one for the shape. *schema*: the demo model's JSON by a
schema, one request at a time. Prints tokens a second of both, and the median of the rounds' ratios.

With --llama and --gguf two servers of llama.cpp get the same edits and fresh texts in turns with ours: one as it is,
one that looks guesses up. The GGUF file is made of build/model-copying-SHAPE, which the first run writes.
"""

import asyncio
import json
import random
import shlex
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import click

from penstock.bench.load.apis import APIS, Api, Prompt
from penstock.bench.load.client import Target
from penstock.bench.load.generator import Concurrency, generate_load
from penstock.bench.load.measurement import Run
from penstock.bench.load.option_types import Numbers
from penstock.bench.programs.children import exit_on_sigterm, free_port
from penstock.bench.programs.copying_model import WORDS_FILE, circle, write_copying_model
from penstock.bench.programs.model import SHAPES
from penstock.bench.programs.peers import LlamaCpp, ServerCommand, find_peers, llama_options, own_server
from penstock.bench.programs.root import BUILD, DEMO_MODEL
from penstock.bench.server.running import running
from penstock.shard.config import physical_cores

DRAFTS_WRONG = 0.12
"""The share of the words whose place in the circle the draft model has given to another: after either it may be wrong.
"""
PROMPT_WORDS, CHANGE_AT = 192, 0.5
"""The length of the text that is repeated, and where in it the changed word is."""
SCHEMA = {
    "type": "object", "additionalProperties": False,
    "required": ["first_name", "family_name", "date_of_birth", "nationality", "occupation"],
    "properties": {
        "first_name": {"type": "string", "maxLength": 8}, "family_name": {"type": "string", "maxLength": 8},
        "date_of_birth": {"type": "integer", "minimum": 1900, "maximum": 2026},
        "nationality": {"enum": ["german", "french", "spanish"]}, "occupation": {"enum": ["plumber", "painter"]}}}

LOOKUP = "--spec-type ngram-map-k --spec-ngram-map-k-size-n 2 --spec-ngram-map-k-size-m SPECULATE"
"""The options that make llama.cpp look guesses up, in the request's own tokens alone: its ngram-mod remembers other
requests, whose answers are parts of the same circle."""


@dataclass(frozen=True)
class Pair:
    """Two servers of one program: `ports` are those of the one that does not guess, and of the one that does."""

    name: str
    api: Api
    ports: tuple[int, int]


def edits(words: Sequence[str], draw: random.Random) -> str:
    """Writes a part of the circle with one word changed, then its first words again."""
    start = draw.randrange(len(words))
    text = [words[(start + index) % len(words)] for index in range(PROMPT_WORDS)]
    repeated = text[:2]
    text[int(CHANGE_AT * len(text))] = draw.choice(words)
    return "".join([*text, *repeated])


def fresh(words: Sequence[str], draw: random.Random) -> str:
    """Writes random words: the answer goes on along the circle, where they have not been."""
    return "".join(draw.choice(words) for _ in range(PROMPT_WORDS))


def rates(pair: Pair, level: int, prompts: Sequence[Prompt], fields: dict[str, Any], is_turned: bool) -> list[float]:
    """Sends a load to both servers; returns the tokens a second of both."""
    def measure(port: int) -> float:
        target = Target(f"http://127.0.0.1:{port}", pair.api, fields=fields)
        run: Run = asyncio.run(generate_load(target, Concurrency(level), prompts))
        if run.failures:
            raise click.ClickException(f"{pair.name} failed: {run.failures[0]}")
        return run.tokens_per_second

    found = {port: measure(port) for port in (pair.ports[::-1] if is_turned else pair.ports)}
    return [found[port] for port in pair.ports]


def run_rounds(
    name: str, pairs: Sequence[Pair], level: int, rounds: int, make: Callable[[], list[Prompt]], fields: dict[str, Any]
) -> None:
    """Measures one load in all rounds, and prints what came of it."""
    found: dict[Pair, list[list[float]]] = {pair: [] for pair in pairs}
    for number in range(rounds):
        prompts = make()
        for pair in pairs:
            found[pair].append(rates(pair, level, prompts, fields, bool(number % 2)))
    for pair in pairs:
        plain, guessing = (median(rates) for rates in zip(*found[pair], strict=True))
        ratios = sorted(guessed / alone for alone, guessed in found[pair])
        click.echo(f"{name:>7} {level:>8}  {pair.name:>9} {plain:>16.1f} {guessing:>10.1f}   × {median(ratios):.2f}"
                   f"   ({ratios[0]:.2f} to {ratios[-1]:.2f})")


@click.command(help=__doc__)
@click.option("--shape", default="360m", show_default=True, type=click.Choice(list(SHAPES)))
@click.option("--speculate", default=8, show_default=True)
@click.option("--concurrency", default="1,4,16,32", show_default=True, type=Numbers(is_whole=True))
@click.option("--new", default=128, show_default=True, help="Tokens of each answer.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--flag", "flags", multiple=True, help="A flag for both of our servers, such as --flag=--quantize=int4.")
@llama_options
@click.option("--lookup", default=LOOKUP, show_default=True,
              help="Flags of the llama.cpp that looks guesses up; SPECULATE stands for that option's value.")
def main(
    shape: str, speculate: int, concurrency: list[float], new: int, rounds: int, flags: tuple[str, ...],
    llama: Path | None, gguf: Path | None, lookup: str,
) -> None:
    exit_on_sigterm()
    _, peer = find_peers(None, llama, gguf, len(physical_cores()))
    lookup = lookup.replace("SPECULATE", str(speculate))
    folder = _copying(shape)
    words, draw = circle(folder), random.Random(0)
    click.echo("   load  streams    program  tokens/s:  plain   guessing   ratio, of the medians' rounds")
    with ExitStack() as stack:
        pairs = [_own(stack, folder, speculate, flags)]
        if peer:
            pairs.append(_llama(stack, peer, shlex.split(lookup)))
        for write in (edits, fresh):
            for level in map(int, concurrency):
                run_rounds(write.__name__, pairs, level, rounds, partial(_prompts, write, words, draw, level, new), {})
    if (draft := f"{shape}-draft") in SHAPES:
        drafting = _copying(draft, DRAFTS_WRONG)
        with ExitStack() as stack:
            pair = _own(stack, folder, speculate, flags, ["--draft-model-id", str(drafting)])
            for level in map(int, concurrency):
                run_rounds("drafted", [pair], level, rounds, partial(_prompts, fresh, words, draw, level, new), {})
    with ExitStack() as stack:
        pair = _own(stack, DEMO_MODEL, speculate, flags)
        grammar = {"grammar": {"type": "json", "value": SCHEMA}}
        run_rounds("schema", [pair], 1, 3 * rounds, lambda: [
            Prompt(f"def read_{draw.randrange(999)}(self, path):", new) for _ in range(4)], grammar)
    click.echo(json.dumps({"shape": shape, "speculate": speculate, "rounds": rounds, "flags": flags,
                           **({"lookup": lookup} if peer else {})}))


def _copying(shape: str, share_wrong: float = 0.0) -> Path:
    """Returns the folder of a copying model, which is written if it is not there."""
    folder = BUILD.resolve() / f"model-copying-{shape}"
    if not (folder / WORDS_FILE).exists():
        click.echo(f"writing a model into {folder}")
        write_copying_model(folder, shape, share_wrong=share_wrong)
    return folder


def _prompts(
    write: Callable[[Sequence[str], random.Random], str], words: Sequence[str], draw: random.Random, number: int,
    new: int,
) -> list[Prompt]:
    return [Prompt(write(words, draw), new) for _ in range(number)]


def _own(
    stack: ExitStack, model: Path, speculate: int, flags: Sequence[str], drafting: Sequence[str] = ()
) -> Pair:
    guessing = ["--speculate", str(speculate), *drafting]
    return _pair(stack, APIS["tgi"], lambda port, is_guessing: own_server(
        model, port, [*(guessing if is_guessing else ()), *flags]))


def _llama(stack: ExitStack, peer: LlamaCpp, lookup: Sequence[str]) -> Pair:
    return _pair(stack, APIS["openai"], lambda port, is_guessing: peer.server(port, lookup if is_guessing else ()))


def _pair(stack: ExitStack, api: Api, server: Callable[[int, bool], ServerCommand]) -> Pair:
    """Starts two servers; `server` makes the command of one for a port, and for whether it guesses."""
    ports = free_port(), free_port()
    commands = [server(port, is_guessing) for port, is_guessing in zip(ports, (False, True), strict=True)]
    for command, port in zip(commands, ports, strict=True):
        stack.enter_context(running(command, port))
    return Pair(commands[0].name, api, ports)


if __name__ == "__main__":
    main()
