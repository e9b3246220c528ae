"""Measures the steps of a server on this machine, from the outside: what the router costs is in them."""

import asyncio
import itertools
import json
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import click
from tokenizers import Tokenizer
from tqdm import tqdm

from penstock.bench.load.apis import APIS
from penstock.bench.load.client import Target
from penstock.bench.load.generator import Concurrency, Pace, generate_load
from penstock.bench.load.measurement import Measurement, Run
from penstock.bench.load.prompts import RandomPrompts, load_tokenizer
from penstock.bench.planning.costs import Measured, decode_work, prompt_work
from penstock.bench.planning.fitting import Observation, fit
from penstock.bench.programs.children import free_port
from penstock.bench.programs.peers import own_server
from penstock.bench.server.cell import SCRIPTED, cell
from penstock.bench.server.running import running
from penstock.checkpoints.tokenizers.place import tokenizer_of

DECODES = (1, 16), (2, 16), (4, 16), (8, 16), (16, 16), (32, 16), (1, 512), (8, 512)
"""Sequences that decode at once, and the tokens of their prompts."""
ANSWER = 48
PROMPTS = 16, 64, 256, 1024
"""Tokens of prompts that are computed alone."""
AMID = 16, 128
"""Tokens of prompts that come while STREAMS answers of up to LONG tokens are made."""
STREAMS, LONG = 3, 400
TRIES = 5
"""How many prompts of each length are sent, one after the other."""
WAITED = 1.5
"""The steps for which a request waits that comes amid others: half of the one that runs, and the next, which is planned
already."""
ADDED_TO = 16
MARGIN = 8
"""Tokens of a sequence beside a prompt: those that the server puts before it, and two of an answer."""
LONGEST = 1 << 14
FIRST_SEED, OTHER_SEEDS = 1000, 1_000_000
"""Of the prompts. Each load has one of its own, or else its prompts would begin as those of another, and be cached."""
TIMEOUT = 600.0


@dataclass(frozen=True)
class Served:
    """A server of this machine that runs, with the tokens that its memory holds."""

    url: str
    tokenizer: Tokenizer
    kv_tokens: int
    longest: int                         # the most tokens of a prompt and its answer

    def send(self, pace: Pace, prompt: int, answer: int, number: int, seed: int) -> Run:
        """Sends random prompts of so many tokens, whose answers do not end early. Raises ClickException if one fails.
        """
        return asyncio.run(self.load(pace, prompt, answer, number, seed))

    async def load(self, pace: Pace, prompt: int, answer: int, number: int, seed: int) -> Run:
        """Does the same beside others."""
        prompts = RandomPrompts(prompt, seed, self.tokenizer).take(number, answer)
        target = Target(self.url, APIS["tgi"], timeout=TIMEOUT, fields={"ignore_eos": True})
        run = await generate_load(target, pace, prompts)
        if run.failures:
            raise click.ClickException(f"a request failed: {run.failures[0].kind} {run.failures[0].details}".rstrip())
        return run

    def added_tokens(self) -> int:
        """Returns how many tokens the server puts before a prompt."""
        run = self.send(Concurrency(1), ADDED_TO, 1, 1, seed=0)
        return round(median(run.prompt_lengths)) - ADDED_TO


@contextmanager
def served(model: Path, flags: Sequence[str]) -> Iterator[Served]:
    """Starts a server with these flags of the launcher, and yields it once it is ready."""
    port = free_port()
    with running(own_server(model, port, flags), port):
        yield _at(f"http://127.0.0.1:{port}", model)


@contextmanager
def scripted(model: Path, step_seconds: float) -> Iterator[Served]:
    """Starts a router whose shard is a script of which each step takes so long, and yields it once it serves."""
    with cell(model, 1, (), (), SCRIPTED, {"KERNELS_STEP_SECONDS": str(step_seconds)}) as made:
        yield _at(made.url, model)


def _at(url: str, model: Path) -> Served:
    """Asks a server how much room it has."""
    with urllib.request.urlopen(f"{url}/info", timeout=TIMEOUT) as response:
        info = json.load(response)
    return Served(url, load_tokenizer(str(tokenizer_of(model))), int(info["max_batch_total_tokens"]),
                  min(int(info["max_total_tokens"]), LONGEST))


def measure(server: Served, rounds: int) -> Measured:
    """Returns the cost of steps that fits those that were observed in so many rounds."""
    seeds = itertools.count(FIRST_SEED)
    return fit([each for _ in range(rounds) for each in observe(server, seeds)])


def observe(server: Served, seeds: Iterator[int]) -> list[Observation]:
    """Measures steps of decoding sequences once, and of prompts of several lengths, alone and amid others. The seeds of
    the prompts are taken from `seeds`."""
    loads: list[Callable[[int], list[Observation]]] = []
    for together, length in DECODES:
        if length + ANSWER < server.longest:
            loads.append(partial(_decode, server, together, length))
    for measured, lengths in ((_first_token, PROMPTS), (_first_token_amid, AMID)):
        loads += [partial(measured, server, length) for length in lengths if length + MARGIN < server.longest]
    return [each for load in tqdm(loads, unit="load", leave=False) for each in load(next(seeds))]


def _decode(server: Served, together: int, length: int, seed: int) -> list[Observation]:
    """Measures the steps of so many sequences."""
    run = server.send(Concurrency(together), length, ANSWER, together, seed)
    behind = round(median(run.prompt_lengths)) + 3 * ANSWER // 4
    return [Observation(decode_work(together, behind), median(map(late_step, run.answered)))]


def _first_token(server: Served, length: int, seed: int) -> list[Observation]:
    """Measures the time to the first token of prompts alone."""
    run = server.send(Concurrency(1), length, 2, TRIES, seed)
    firsts = [one.first for one in run.answered if one.first is not None]
    return [Observation(prompt_work(round(median(run.prompt_lengths))), median(firsts), requests=1)]


def _first_token_amid(server: Served, length: int, seed: int) -> list[Observation]:
    """Measures the same while answers are made; returns nothing if these have all ended before."""
    answer = min(LONG, server.longest - DECODES[0][1] - MARGIN)

    async def both() -> tuple[Run, Run]:
        streams = asyncio.create_task(server.load(Concurrency(STREAMS), DECODES[0][1], answer, STREAMS, seed))
        own = await server.load(Concurrency(1), length, 2, 3 * TRIES, OTHER_SEEDS + seed)
        return await streams, own

    streams, own = asyncio.run(both())
    begin, end = max(one.times[0] for one in streams.answered), min(one.end for one in streams.answered)
    firsts = [one.first for one in own.answered
              if one.first is not None and one.start > begin and one.times[0] < end]
    if not firsts:
        return []
    decode = decode_work(STREAMS, round(median(streams.prompt_lengths)) + answer // 2)
    work = WAITED * decode + (decode + prompt_work(round(median(own.prompt_lengths))))
    return [Observation(work, median(firsts), steps=WAITED + 1, requests=1)]


def late_step(measurement: Measurement) -> float:
    """Returns the mean time of a step over the second half of an answer, when no prompt is computed beside it."""
    times = measurement.times[len(measurement.times) // 2:]
    return (times[-1] - times[0]) / (len(times) - 1)
