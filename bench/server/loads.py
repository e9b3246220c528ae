"""`penstock bench loads`: how long models take to load, and what streams of another one notice of it."""

import asyncio
import json
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, median, quantiles
from tempfile import TemporaryDirectory
from typing import Self

import aiohttp
import click
from tqdm import tqdm

from penstock.bench.programs.children import Child, exit_on_sigterm, free_port
from penstock.bench.programs.peers import CHECKPOINT, own_server
from penstock.bench.programs.record import write
from penstock.bench.server.start import wait_for_answer

TIMEOUT = 900.0
ALONE_SECONDS = 5.0
"""How long streams run before the other model is loaded."""
TOKENS = 200


@dataclass(frozen=True, slots=True)
class Gaps:
    """The milliseconds from token to token of so many."""

    number: int
    mean: float
    p50: float
    p99: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Self:
        places = quantiles(seconds, n=100, method="inclusive")
        return cls(len(seconds), *(round(each * 1e3, 3) for each in (fmean(seconds), places[49], places[98])))


@dataclass(frozen=True, slots=True)
class Round:
    """The seconds of a first load, of the next ones, and of a first one beside streams; and the streams' gaps, alone
    and during that load."""

    first: float
    next: Sequence[float]
    beside: float
    gaps_alone: Gaps
    gaps_beside: Gaps
    phases: Sequence[str] = ()
    """The seconds of the shards' phases, of each load."""


class Server:
    """A server of the models `stream`, which is always loaded, `a` and `b`."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self.gaps: list[float] = []

    async def change(self, what: str, model: str) -> float:
        """Loads or unloads a model; returns the seconds that it took."""
        begin = time.perf_counter()
        async with self._session.post(f"/v1/{what}_model", json={"model": model}) as response:
            await response.read()
        return time.perf_counter() - begin

    async def stream(self) -> None:
        """Has answers of `stream` written, one after the other, and notes the time from token to token."""
        while True:
            body = {"model": "stream", "prompt": "def", "max_tokens": TOKENS, "stream": True, "ignore_eos": True}
            async with self._session.post("/v1/completions", json=body) as response:
                last = 0.0
                async for line in response.content:
                    now = time.perf_counter()
                    if line.startswith(b"data: {"):
                        if last:
                            self.gaps.append(now - last)
                        last = now


async def measure(url: str, streams: int, loads: int) -> Round:
    """Measures a server of nothing but `stream`, at first."""
    async with aiohttp.ClientSession(url, headers={"authorization": "Bearer key"}, raise_for_status=True,
                                     timeout=aiohttp.ClientTimeout(TIMEOUT)) as session:
        server = Server(session)
        first, later = await server.change("load", "a"), []
        for _ in range(loads):
            await server.change("unload", "a")
            later.append(await server.change("load", "a"))
        await server.change("unload", "a")
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(server.stream()) for _ in range(streams)]
            await asyncio.sleep(1.0)
            server.gaps = []
            await asyncio.sleep(ALONE_SECONDS)
            alone, server.gaps = server.gaps, []
            took, beside = await server.change("load", "b"), server.gaps
            for task in tasks:
                task.cancel()
        return Round(first, later, took, Gaps.of(alone), Gaps.of(beside))


def run(model: Path, streaming: Path, flags: Sequence[str], streams: int, loads: int) -> Round:
    """Starts a server, measures it and ends it. Raises ClickException if it does not answer."""
    port = free_port()
    own = own_server(streaming, port, flags)
    with TemporaryDirectory() as folder:
        models = [{"name": "stream", "model_id": str(streaming)},
                  *({"name": name, "model_id": str(model)} for name in "ab")]
        file = Path(folder, "models.yaml")
        file.write_text(json.dumps({"models": models}))
        named = own.command.index("--model-id")
        command = [*own.command[:named], "--models", str(file), *own.command[named + 2:], "--api-key", "key"]
        with Child(own.name, command, Path(folder), own.environment) as child:
            wait_for_answer(child, f"http://127.0.0.1:{port}/health", time.perf_counter() + TIMEOUT, None)
            found = asyncio.run(measure(f"http://127.0.0.1:{port}", streams, loads))
            return replace(found, phases=re.findall(r"ready in (.*)", child.output)[1:])


def told(gaps: Sequence[Gaps]) -> str:
    """Returns the medians of several servers."""
    mean, p50, p99 = (median(getattr(each, name) for each in gaps) for name in ("mean", "p50", "p99"))
    return f"mean {mean:.2f}, p50 {p50:.2f}, p99 {p99:.2f} ms"


@click.command(context_settings={"show_default": True, "ignore_unknown_options": True})
@click.argument("model", type=CHECKPOINT)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
@click.option("--streaming-model", type=CHECKPOINT, help="The model of the streams.  [default: the same]")
@click.option("--streams", type=click.IntRange(1), default=2, help="How many answers are written meanwhile.")
@click.option("--loads", type=click.IntRange(1), default=2, help="How often the model is loaded again.")
@click.option("--rounds", type=click.IntRange(1), default=3, help="How many servers are measured.")
@click.option("--keep-weights", default="64GiB", help="As the server has it.")
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Where raw figures are written.")
def main(
    model: Path, flags: tuple[str, ...], streaming_model: Path | None, streams: int, loads: int, rounds: int,
    keep_weights: str, file: Path | None,
) -> None:
    """Time the loads of MODEL, and the tokens of streams meanwhile. FLAGS are the launcher's."""
    exit_on_sigterm()
    found = [run(model, streaming_model or model, ["--keep-weights", keep_weights, *flags], streams, loads)
             for _ in tqdm(range(rounds), unit="server", leave=False)]
    first, later = median(each.first for each in found), median(each for one in found for each in one.next)
    print(f"first load {first:.2f} s, next {later:.2f} s: {later / first:.3f} of it")
    print(f"from token to token of {streams} streams: {told([each.gaps_alone for each in found])}; "
          f"during a first load, of {median(each.beside for each in found):.2f} s: "
          f"{told([each.gaps_beside for each in found])}")
    for phases in found[-1].phases:
        print(phases)
    if file is not None:
        write(file, "loads", f"{model.name}, {streams} streams", [asdict(each) for each in found])


if __name__ == "__main__":
    main()
