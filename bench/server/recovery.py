"""How long streams pause when a shard is killed: `python -m penstock.bench.server.recovery`.

Streams with long prompts of their own run on two shards, of which one is killed while all of them decode; a second
later a short new request comes. A stream has moved on for good at the end of its longest pause. Times count from the
first stream that moves, and are shares of what all the prompts took undisturbed, in the same run. At last come the
seconds that the new shards spent on each phase until they listened.
"""

import asyncio
import itertools
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import aiohttp
import click

from penstock.bench.load.apis import APIS
from penstock.bench.load.client import Target
from penstock.bench.load.prompts import RandomPrompts, load_tokenizer
from penstock.bench.programs.children import Child, exit_on_sigterm, free_port
from penstock.bench.programs.peers import DIRECTORY, own_server
from penstock.bench.programs.root import ROOT
from penstock.bench.server.running import running

DECODE_SECONDS = 0.5
"""How long all streams decode before the kill."""
NEW_AFTER = 1.0
"""The seconds from the kill to the new request."""
NEW_PROMPT = 16


@dataclass
class Watched:
    """One stream, and when each of its tokens came."""

    start: float
    times: list[float] = field(default_factory=list)
    num_errors: int = 0

    def pause_end(self, since: float) -> float:
        """Returns the end of the longest pause between two tokens after `since`, which is when the shard died."""
        times = [since, *(moment for moment in self.times if moment > since)]
        pauses = [(later - earlier, later) for earlier, later in itertools.pairwise(times)]
        return max(pauses)[1]


@dataclass(frozen=True)
class Recovery:
    """The measurement; `prompts`, `first` and `last` in seconds, `median` and `new` as shares of `prompts`."""

    prompts: float
    first: float
    last: float
    median: float
    new: float


async def watch(session: aiohttp.ClientSession, prompt: str, num_new: int, stream: Watched) -> None:
    """Sends a prompt, and notes its tokens and errors."""
    body = {"prompt": prompt, "max_tokens": num_new, "stream": True, "ignore_eos": True, "temperature": 0}
    async with session.post("v1/completions", json=body) as response:
        async for line in response.content:
            if line.startswith(b"data: {"):
                stream.times.append(time.perf_counter())
                stream.num_errors += b'"error"' in line


async def measure(url: str, child: Child, prompts: Sequence[str], new_prompt: str, num_new: int) -> Recovery:
    """Runs the streams through one kill. Raises ClickException if one of them fails."""
    target = Target(url, APIS["openai"])
    async with target.session() as session, asyncio.TaskGroup() as tasks:
        began = time.perf_counter()
        streams = [Watched(began) for _ in prompts]
        for prompt, stream in zip(prompts, streams, strict=True):
            tasks.create_task(watch(session, prompt, num_new, stream))
        while not all(stream.times for stream in streams):  # noqa: ASYNC110 (a look now and then costs less)
            await asyncio.sleep(0.01)
        prompts_took = max(stream.times[0] for stream in streams) - began
        await asyncio.sleep(DECODE_SECONDS)
        killed_at = time.perf_counter()
        next(process for process in child.family() if "penstock.shard" in process.cmdline()).kill()
        await asyncio.sleep(NEW_AFTER)
        new = Watched(time.perf_counter())
        tasks.create_task(watch(session, new_prompt, 8, new))
    if failed := sum(stream.num_errors or len(stream.times) < num_new for stream in streams):
        raise click.ClickException(f"{failed} of {len(streams)} streams failed")
    moved = sorted(stream.pause_end(killed_at) for stream in streams)
    return Recovery(
        prompts=round(prompts_took, 2), first=round(moved[0] - killed_at, 2), last=round(moved[-1] - killed_at, 2),
        median=round((median(moved) - moved[0]) / prompts_took, 3),
        new=round((new.times[0] - moved[0]) / prompts_took, 3))


def phases(log: str) -> dict[str, float]:
    """Returns the median seconds of each phase of a new shard's start, by the log of a server whose group was started
    more than once."""
    starts = [dict(part.rsplit(" ", 1) for part in found.split(", "))
              for found in re.findall(r"shard-0: ready in .* s: (.*)", log)]
    return {name: round(median(float(start[name]) for start in starts[1:]), 2) for name in starts[0]}


@click.command(help=__doc__)
@click.option("--model-id", type=DIRECTORY, default=ROOT / "deploy/demo_model/checkpoint", help="A directory.  "
              "[default: the demo model]")
@click.option("--streams", default=32, show_default=True)
@click.option("--prompt", default=1400, show_default=True, help="Tokens of each prompt.")
@click.option("--new", default=400, show_default=True, help="Tokens of each answer.")
@click.option("--rounds", default=3, show_default=True)
def main(model_id: Path, streams: int, prompt: int, new: int, rounds: int) -> None:
    exit_on_sigterm()
    port, tokenizer = free_port(), load_tokenizer(str(model_id))
    source, short = RandomPrompts(prompt, tokenizer=tokenizer), RandomPrompts(NEW_PROMPT, 1, tokenizer)
    with running(own_server(model_id, port, ["--num-shard", "2"]), port) as child:
        for _ in range(rounds):
            texts = [str(each.text) for each in source.take(streams, new)]
            [new_text] = [str(each.text) for each in short.take(1, 8)]
            found = asyncio.run(measure(f"http://127.0.0.1:{port}/", child, texts, new_text, new))
            print(json.dumps(found.__dict__), flush=True)
        print(json.dumps(phases(child.output)))


if __name__ == "__main__":
    main()
