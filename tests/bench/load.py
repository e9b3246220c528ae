"""How fast a server answers: `python -m tests.bench.load URL`.

For each concurrency, as many clients as that send prompts to /generate_stream one after the other, until enough
requests are answered. Prompts are pieces of Python source, so that the demo model goes on for long; the end token ends
an answer, so the tokens that came are counted, not those that were asked for.
"""

import asyncio
import json
import random
import time
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import click
from tqdm import tqdm

PIECES = ["import os\n\n\n", "def walk(path):\n", "    for name in os.listdir(path):\n", "        yield name\n"]


@dataclass(slots=True)
class Measured:
    """Of one concurrency; times in seconds."""

    num_tokens: int = 0
    first: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)
    duration: float = 0.0


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def make_body(seed: int, prompt: int, new: int) -> dict[str, Any]:
    text = "".join(random.Random(seed).choices(PIECES, k=prompt))
    return {"inputs": text, "parameters": {"truncate": prompt, "max_new_tokens": new, "do_sample": True, "seed": seed}}


async def client(
    session: aiohttp.ClientSession, url: str, bodies: list[dict[str, Any]], measured: Measured, bar: "tqdm[None]"
) -> None:
    while bodies:
        body = bodies.pop()
        last, is_first = time.perf_counter(), True
        async with session.post(f"{url}/generate_stream", json=body) as response:
            async for line in response.content:
                if not line.startswith(b"data:"):
                    continue
                if "error" in (event := json.loads(line[5:])):
                    raise click.ClickException(event["error"])
                now = time.perf_counter()
                (measured.first if is_first else measured.between).append(now - last)
                last, is_first = now, False
                measured.num_tokens += 1
        bar.update()


async def measure(url: str, concurrency: int, requests: int, prompt: int, new: int) -> Measured:
    measured, bodies = Measured(), [make_body(seed, prompt, new) for seed in range(requests)]
    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        with tqdm(total=requests, desc=f"concurrency {concurrency}", leave=False) as bar:
            start = time.perf_counter()
            await asyncio.gather(*(client(session, url, bodies, measured, bar) for _ in range(concurrency)))
            measured.duration = time.perf_counter() - start
    return measured


@click.command(help=__doc__)
@click.argument("url", default="http://localhost:3000")
@click.option("--concurrency", default="1,4,16", show_default=True)
@click.option("--requests", default=32, show_default=True, help="For each concurrency.")
@click.option("--prompt", default=64, show_default=True, help="Tokens of each prompt.")
@click.option("--new", default=64, show_default=True, help="Tokens of each answer, at most.")
def main(url: str, concurrency: str, requests: int, prompt: int, new: int) -> None:
    print("concurrency  tokens/s  first token p50 p90 p99 (ms)  between tokens p50 p90 p99 (ms)")
    for number in map(int, concurrency.split(",")):
        measured = asyncio.run(measure(url, number, max(requests, number), prompt, new))
        first, between = ([f"{1e3 * percentile(values, share):7.1f}" for share in (0.5, 0.9, 0.99)]
                          for values in (measured.first, measured.between))
        rate = measured.num_tokens / measured.duration
        print(f"{number:11}  {rate:8.1f}  {' '.join(first):>28}  {' '.join(between):>31}")


if __name__ == "__main__":
    main()
