"""Beam searches of a server beside transformers' `generate`: `python -m penstock.bench.server.beams MODEL [FLAG ...]`.

All prompts are sent at once; transformers gets them as one batch, padded on the left. Both have as many threads, the
same prompts, and no end but the last token, in each of two number formats. Rounds take turns. Then a search with a long
prompt runs alone, once with one beam and once with all, and the most blocks of KV memory that were held are compared.
Flags are the launcher's.
"""

import random
import re
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import orjson

from penstock.bench.programs import record
from penstock.bench.programs.children import Child, exit_on_sigterm, free_port
from penstock.bench.programs.peers import CHECKPOINT, own_server
from penstock.bench.server.beam_runs import Run, table, to_json
from penstock.bench.server.start import wait_for_answer

START_SECONDS = 900.0
SHORTEST, LONGEST = 16, 96
LONG_PROMPT, LONG_ANSWER = 512, 64
DTYPES = ("float32", "bfloat16")
Prompts = list[list[int]]


class Server:
    """Penstock at a port of this machine."""

    def __init__(self, url: str) -> None:
        self._url = url

    def search(self, prompts: Prompts, num_beams: int, num_tokens: int) -> None:
        """Has all prompts answered by beams; with one the likeliest tokens are taken."""
        body = {"prompt": prompts, "n": num_beams, "use_beam_search": True, "max_tokens": num_tokens, "temperature": 0,
                "ignore_eos": True}
        request = urllib.request.Request(
            f"{self._url}/v1/completions", orjson.dumps(body), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=START_SECONDS) as response:
            choices = orjson.loads(response.read())["choices"]
        if len(choices) != len(prompts) * num_beams:
            raise click.ClickException(f"{len(choices)} answers came, not {len(prompts) * num_beams}")

    def most_blocks(self, num_beams: int) -> int:
        """Returns how many blocks a search with a long prompt holds at most."""
        most = 0
        with ThreadPoolExecutor(1) as threads:
            prompts = random_prompts(1, LONG_PROMPT, LONG_PROMPT, seed=num_beams)
            searching = threads.submit(self.search, prompts, num_beams, LONG_ANSWER)
            while not searching.done():
                most = max(most, self._held_blocks())
            searching.result()
        return most

    def _held_blocks(self) -> int:
        with urllib.request.urlopen(f"{self._url}/metrics") as response:
            metrics = response.read().decode()
        return int(float(re.findall(r'^penstock_kv_blocks\{state="used"\} (\S+)$', metrics, re.MULTILINE)[0]))


def random_prompts(number: int, shortest: int, longest: int, seed: int = 1) -> Prompts:
    """Makes prompts of tokens that every model has."""
    draw = random.Random(seed)
    return [draw.choices(range(100, 2000), k=draw.randint(shortest, longest)) for _ in range(number)]


@contextmanager
def serving(model: Path, flags: tuple[str, ...]) -> Iterator[Server]:
    """Runs a server while it is measured."""
    port = free_port()
    server = own_server(model, port, flags)
    with (TemporaryDirectory() as folder,
          Child(server.name, server.command, Path(folder), server.environment) as child):
        wait_for_answer(child, f"http://127.0.0.1:{port}/generate", time.perf_counter() + START_SECONDS)
        yield Server(f"http://127.0.0.1:{port}")


class Transformers:
    """The same model in this process, by transformers."""

    def __init__(self, model: Path, dtype: str, num_threads: int) -> None:
        import torch  # these two take seconds to import
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(num_threads)
        any_model: Any = AutoModelForCausalLM
        self._model = any_model.from_pretrained(model, dtype=dtype).eval()
        self._torch = torch

    def search(self, prompts: Prompts, num_beams: int, num_tokens: int) -> None:
        """Has all prompts answered by beams in one batch."""
        longest = max(map(len, prompts))
        ids = [[0] * (longest - len(prompt)) + prompt for prompt in prompts]
        mask = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        with self._torch.inference_mode():
            self._model.generate(
                self._torch.tensor(ids), attention_mask=self._torch.tensor(mask), num_beams=num_beams,
                num_return_sequences=num_beams, max_new_tokens=num_tokens, do_sample=False, eos_token_id=None,
                pad_token_id=0)


def seconds(searcher: Server | Transformers, prompts: Prompts, num_beams: int, num_tokens: int) -> float:
    """Returns how long all prompts take."""
    began_at = time.perf_counter()
    searcher.search(prompts, num_beams, num_tokens)
    return time.perf_counter() - began_at


def measure(
    model: Path, flags: tuple[str, ...], dtype: str, prompts: Prompts, beams: int, tokens: int, threads: int,
    rounds: int,
) -> Run:
    """Returns the figures of one number format."""
    peer = Transformers(model, dtype, threads)
    own = ("--dtype", dtype, "--threads", str(threads), "--max-client-batch-size", str(len(prompts)))
    with serving(model, (*own, *flags)) as server:
        server.search(prompts[:1], beams, 2)
        times = [(seconds(server, prompts, beams, tokens), seconds(peer, prompts, beams, tokens))
                 for _ in range(rounds)]
        ours, theirs = zip(*times, strict=True)
        return Run([*ours], [*theirs], server.most_blocks(1), server.most_blocks(beams))


@click.command(help=__doc__, context_settings={"ignore_unknown_options": True})
@click.argument("model", type=CHECKPOINT)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
@click.option("--prompts", "num_prompts", type=click.IntRange(1), default=16, show_default=True)
@click.option("--beams", type=click.IntRange(2), default=4, show_default=True)
@click.option("--tokens", type=click.IntRange(1), default=64, show_default=True)
@click.option("--dtype", "dtypes", type=click.Choice(DTYPES), multiple=True, default=DTYPES, show_default=True,
              help="The number format in which both compute; may be repeated.")
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True, help="Of both.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path),
              help="Where to write the raw figures.")
def main(
    model: Path, flags: tuple[str, ...], num_prompts: int, beams: int, tokens: int, dtypes: tuple[str, ...],
    threads: int, rounds: int, json_file: Path | None,
) -> None:
    exit_on_sigterm()
    prompts = random_prompts(num_prompts, SHORTEST, LONGEST)
    runs = {dtype: measure(model, flags, dtype, prompts, beams, tokens, threads, rounds) for dtype in dtypes}
    subject = (f"{model.parent.name}/{model.name}, {num_prompts} prompts of {SHORTEST} to {LONGEST} tokens at once, "
               f"{beams} beams, {tokens} new tokens; blocks of a prompt of {LONG_PROMPT} with {LONG_ANSWER} new tokens")
    if json_file:
        record.write(json_file, "beams", subject, to_json(runs))
    print(subject)
    for row in table(runs):
        print(" | ".join(row))


if __name__ == "__main__":
    main()
