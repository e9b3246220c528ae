"""A load generator for /generate_stream: so many clients, each sending one prompt after the other."""

import asyncio
import json
import random
import time
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from tqdm import tqdm

PIECES = ["import os\n\n\n", "def walk(path):\n", "    for name in os.listdir(path):\n", "        yield name\n"]
"""Of the prompts: Python source, which the demo model goes on with for long."""


@dataclass(slots=True)
class Load:
    """What was measured at one concurrency; times in seconds. An end token may end an answer, so tokens are counted."""

    concurrency: int
    num_tokens: int = 0
    first: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)
    duration: float = 0.0

    @property
    def tokens_per_second(self) -> float:
        return self.num_tokens / self.duration


def percentile(values: list[float], share: float) -> float:
    """The value that `share` of the values do not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


async def generate_load(url: str, concurrency: int, requests: int, prompt: int, new: int) -> Load:
    """Send `requests` prompts of `prompt` tokens, at most `concurrency` at once; each asks for `new` tokens."""
    load, bodies = Load(concurrency), [_body(seed, prompt, new) for seed in range(requests)]
    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        with tqdm(total=requests, desc=f"concurrency {concurrency}", unit="request", leave=False) as bar:
            start = time.perf_counter()
            await asyncio.gather(*(_client(session, url, bodies, load, bar) for _ in range(concurrency)))
            load.duration = time.perf_counter() - start
    return load


def _body(seed: int, prompt: int, new: int) -> dict[str, Any]:
    text = "".join(random.Random(seed).choices(PIECES, k=prompt))
    return {"inputs": text, "parameters": {"truncate": prompt, "max_new_tokens": new, "do_sample": True, "seed": seed}}


async def _client(
    session: aiohttp.ClientSession, url: str, bodies: list[dict[str, Any]], load: Load, bar: "tqdm[Any]"
) -> None:
    while bodies:
        last, times = time.perf_counter(), load.first
        async with session.post(f"{url}/generate_stream", json=bodies.pop()) as response:
            async for line in response.content:
                if not line.startswith(b"data:"):
                    continue
                if "error" in (event := json.loads(line[5:])):
                    raise RuntimeError(event["error"])
                now = time.perf_counter()
                times.append(now - last)
                last, times = now, load.between
                load.num_tokens += 1
        bar.update()
