"""The command `penstock bench serve`, which sends load to a server and measures its answers."""

import asyncio
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import click

from penstock.bench.load import picture, report
from penstock.bench.load.apis import APIS
from penstock.bench.load.client import ServerError, Target
from penstock.bench.load.generator import Concurrency, Pace, Rate, generate_load
from penstock.bench.load.measurement import STREAMED, Run, group_failures
from penstock.bench.load.option_types import Fields, Limits, Numbers, Url
from penstock.bench.load.prompts import FilePrompts, RandomPrompts, load_tokenizer
from penstock.bench.load.scenarios import SCENARIOS, Part, parts_of

FILE = click.Path(dir_okay=False, path_type=Path)
INTERRUPTED = 130                        # the exit code that shells give to Ctrl-C


@dataclass(frozen=True)
class Load:
    """The requests that are sent, of each part at each of the paces."""

    target: Target
    paces: Sequence[Pace]
    parts: Sequence[Part]
    requests: int
    warm_up: int
    limits: Mapping[str, float]

    async def run(self, runs: list[Run]) -> None:
        """Sends the load; `runs` takes each run as it begins, and its table is printed as it ends.

        Raises ClickException if a warm-up is not answered.
        """
        if self.warm_up:
            prompts = self.parts[0].prompts.take(self.warm_up, self.parts[0].output_tokens)
            warm = await generate_load(self.target, Concurrency(1), prompts)
            if warm.failures:
                failure = warm.failures[0]
                raise click.ClickException(_refusal(self.target.url, failure.kind, failure.details))
        for pace, part in product(self.paces, self.parts):
            prompts = part.prompts.take(self.requests, part.output_tokens)
            runs.append(Run(pace.name, pace.level, lengths=part.lengths))
            await generate_load(self.target, pace, prompts, runs[-1])
            self.show(runs[-1])

    @property
    def num_runs(self) -> int:
        return len(self.paces) * len(self.parts)

    @property
    def description(self) -> str:
        """A few words on the prompts."""
        return ", then ".join(part.prompts.description for part in self.parts)

    def show(self, run: Run) -> None:
        click.echo("\n".join(report.table(run, self.limits)) + "\n")


async def until_interrupted(load: Load) -> list[Run]:
    """Returns all runs, or those up to Ctrl-C, of which the last is marked."""
    runs: list[Run] = []
    task = asyncio.ensure_future(load.run(runs))
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        if runs:
            runs[-1].is_interrupted = True
            load.show(runs[-1])
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
    if runs and runs[0].lengths:
        click.echo("\n".join(report.latencies(runs)))
    elif len(runs) > 1:
        click.echo("\n".join(report.overview(runs)))
    return runs


def _refusal(url: str, kind: str, details: str) -> str:
    if kind == "no connection":
        return f"there is no server at {url}: {details}"
    return f"{url} does not answer a first request ({kind}): {details}".rstrip(": ")


def _parts(
    scenario: str | None, prompts: Path | None, random_tokens: int | None, output_tokens: int | None,
    tokenizer: str | None, seed: int,
) -> list[Part]:
    """Returns the parts of the load. Raises UsageError for options that exclude each other."""
    given = {"--scenario": scenario, "--prompts": prompts, "--random": random_tokens, "--output-tokens": output_tokens}
    named = [name for name, value in given.items() if value]
    if len(named) > 1 and (scenario or named[:2] == ["--prompts", "--random"]):
        raise click.UsageError(f"{named[0]} and {named[1]} exclude each other")
    loaded = load_tokenizer(tokenizer) if tokenizer else None
    if scenario:
        return parts_of(scenario, seed, loaded)
    return [Part(FilePrompts(prompts, seed, loaded) if prompts else RandomPrompts(random_tokens or 128, seed, loaded),
                 output_tokens)]


def _paces(concurrency: list[float] | None, rate: list[float] | None, seed: int, is_scenario: bool) -> list[Pace]:
    if concurrency and rate:
        raise click.UsageError("--concurrency and --rate exclude each other")
    if rate:
        return [Rate(number, seed) for number in rate]
    return [Concurrency(int(number)) for number in concurrency or ([1] if is_scenario else [1, 4, 16])]


@click.command()
@click.option("--url", type=Url(), default="http://localhost:3000", show_default=True, help="The server's address.")
@click.option("--api", type=click.Choice(list(APIS)), default="tgi", show_default=True,
              help="The routes: TGI's /generate_stream, /v1/completions, /v1/chat/completions.")
@click.option("--stream/--no-stream", "is_streamed", default=True, show_default=True,
              help="Whether answers come token by token; without, only end-to-end times are seen.")
@click.option("--model", help="For OpenAI's routes.  [default: the first that the server lists]")
@click.option("--api-key", envvar="API_KEY", show_envvar=True, help="Sent as a bearer token; a variable keeps it out "
              "of the list of processes.")
@click.option("--scenario", type=click.Choice(list(SCENARIOS)), help="Random prompts of several lengths one after the "
              "other, with a table of latencies; lecture: of 51 tokens for 1, of 232 for 1, of 228 for 26.")
@click.option("--prompts", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="One prompt in each line; .jsonl: objects with `prompt` and, if wanted, `output_tokens`; .json: "
              "conversations as ShareGPT's.")
@click.option("--random", "random_tokens", type=click.IntRange(1), metavar="TOKENS",
              help="Prompts of random words: exactly so many tokens with --tokenizer, else so many common English "
              "words, which are about as many tokens.  [default: 128]")
@click.option("--tokenizer", metavar="NAME", help="A folder with a tokenizer.json, such a file, or a model on the Hub.")
@click.option("--requests", type=click.IntRange(1), default=100, show_default=True, help="At each pace.")
@click.option("--output-tokens", type=click.IntRange(1), metavar="TOKENS", help="The most of each answer.  "
              "[default: what the file says, of conversations with --tokenizer; else 128]")
@click.option("--ignore-eos", is_flag=True, help="Ask for answers that do not end early, where the server can.")
@click.option("--concurrency", type=Numbers(is_whole=True), help="Clients, each sending a request when its last one is "
              "answered; several numbers are measured in turn.  [default: 1,4,16; with --scenario 1]")
@click.option("--rate", type=Numbers(is_whole=False), help="Requests a second instead, arriving at random (Poisson).")
@click.option("--goodput", "limits", type=Limits(), metavar="LIMITS", help="Count the requests within "
              "limits in ms, such as ttft:200,itl:50; itl: of the longest gap; also tpot, e2e.")
@click.option("--fields", type=Fields(), metavar="JSON", help="More parameters for each request.")
@click.option("--seed", default=0, show_default=True, help="Of prompts and arrivals.")
@click.option("--warm-up", type=click.IntRange(0), default=1, show_default=True, help="Requests sent before, one after "
              "the other, that do not count.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", default=600.0,
              show_default=True, help="Of each request.")
@click.option("--json", "json_file", type=FILE, help="Write all figures here.")
@click.option("--picture", "picture_file", type=FILE, help="Draw throughput and latency into this .png (needs "
              "matplotlib).")
def main(
    url: str, api: str, is_streamed: bool, model: str | None, api_key: str | None, scenario: str | None,
    prompts: Path | None, random_tokens: int | None, tokenizer: str | None, requests: int, output_tokens: int | None,
    ignore_eos: bool, concurrency: list[float] | None, rate: list[float] | None, limits: dict[str, float] | None,
    fields: dict[str, Any] | None, seed: int, warm_up: int, timeout: float, json_file: Path | None,
    picture_file: Path | None,
) -> None:
    """Send load to a server and measure its answers.

    Ctrl-C ends the measurement and shows what there is so far.
    """
    if not is_streamed and (unseen := STREAMED & set(limits or {})):
        raise click.UsageError(f"--goodput {', '.join(sorted(unseen))}: not seen with --no-stream")
    if model is not None and not APIS[api].needs_model:
        raise click.UsageError(f"--model: the routes of --api {api} name no model")
    if picture_file:
        picture.check_matplotlib()
    for file in (json_file, picture_file):
        if file:
            file.parent.mkdir(parents=True, exist_ok=True)
    target = Target(url, APIS[api], model, api_key, is_streamed, timeout,
                    {**(fields or {}), **({"ignore_eos": True} if ignore_eos else {})})
    paces = _paces(concurrency, rate, seed, scenario is not None)
    parts = _parts(scenario, prompts, random_tokens, output_tokens, tokenizer, seed)
    load = Load(target, paces, parts, requests, warm_up, limits or {})
    try:
        runs = asyncio.run(until_interrupted(load))
    except ServerError as error:
        raise click.ClickException(str(error)) from None
    about = {"version": report.VERSION, "url": url, "api": api, "is_streamed": is_streamed,
             "prompts": load.description, "seed": seed, "fields": dict(target.fields)}
    if json_file:
        figures = [report.as_json(run, load.limits) for run in runs]
        json_file.write_text(json.dumps({**about, "runs": figures}, indent=2))
    if picture_file and runs:
        lines = {run.lengths: {each.level: [each] for each in runs if each.lengths == run.lengths} for run in runs}
        picture.draw({str(lengths or url): own for lengths, own in lines.items()},
                     f"{url}, {api}, {load.description}", runs[0].pace, picture_file)
    if any(run.is_interrupted for run in runs) or len(runs) < load.num_runs:
        sys.exit(INTERRUPTED)
    if not any(run.answered for run in runs):
        raise click.ClickException(f"{url} answered no request: {next(iter(group_failures(runs[0].failures)))}")


if __name__ == "__main__":
    main()
