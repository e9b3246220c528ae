"""A load generator for /v1/completions: so many clients, each sending one prompt after the other."""

import asyncio
import itertools
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from tqdm import tqdm


class RequestFailed(Exception):
    """A server's answer to one request is an error, or incomplete."""


@dataclass(slots=True)
class Load:
    """What was measured at one concurrency; times in seconds. Tokens are the server's own count.

    A server may send several tokens in one chunk, so `between` has the times between chunks, and `per_token` the time
    from the first chunk of an answer to its last, per token.
    """

    concurrency: int
    num_tokens: int = 0
    prompt_lengths: set[int] = field(default_factory=set)
    first: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)
    per_token: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    duration: float = 0.0

    @property
    def tokens_per_second(self) -> float:
        return self.num_tokens / self.duration

    def add(self, start: float, times: Sequence[float], usage: dict[str, int]) -> None:
        """An answer to a request sent at `start`, whose chunks came at `times`."""
        num_tokens = usage["completion_tokens"]
        self.num_tokens += num_tokens
        self.prompt_lengths.add(usage["prompt_tokens"])
        self.first.append(times[0] - start)
        self.between += [later - earlier for earlier, later in itertools.pairwise(times)]
        if num_tokens > 1:
            self.per_token.append((times[-1] - times[0]) / (num_tokens - 1))


def percentile(values: list[float], share: float) -> float:
    """The value that `share` of the values do not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


async def generate_load(url: str, concurrency: int, prompts: Sequence[str], new: int, **fields: Any) -> Load:
    """Send the prompts, at most `concurrency` at once; each is answered with `new` tokens, greedily chosen.

    `fields` are added to each request.
    """
    load, waiting = Load(concurrency), list(prompts)
    # A connection for each request: llama.cpp's server closes them after a stream without saying so.
    connector, timeout = aiohttp.TCPConnector(limit=0, force_close=True), aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(url, connector=connector, timeout=timeout) as session:
        body = {"model": await _model(session), "max_tokens": new, "temperature": 0, "ignore_eos": True,
                "stream": True, "stream_options": {"include_usage": True}, **fields}
        with tqdm(total=len(prompts), desc=f"concurrency {concurrency}", unit="request", leave=False) as bar:
            start = time.perf_counter()
            await asyncio.gather(*(_client(session, body, waiting, load, bar) for _ in range(concurrency)))
            load.duration = time.perf_counter() - start
    return load


async def _model(session: aiohttp.ClientSession) -> str:
    async with session.get("/v1/models") as response:
        return str((await response.json())["data"][0]["id"])


async def _client(
    session: aiohttp.ClientSession, body: dict[str, Any], waiting: list[str], load: Load, bar: "tqdm[Any]"
) -> None:
    while waiting:
        start = time.perf_counter()
        try:
            load.add(start, *await _send(session, {**body, "prompt": waiting.pop()}))
        except (RequestFailed, aiohttp.ClientError) as error:
            load.failures.append(f"{type(error).__name__}: {error}")
        bar.update()


async def _send(session: aiohttp.ClientSession, body: dict[str, Any]) -> tuple[list[float], dict[str, int]]:
    """When the chunks came that have text or end the answer, and the usage."""
    times, usage = [], None
    async with session.post("/v1/completions", json=body) as response:
        if response.status != 200:
            raise RequestFailed(f"status {response.status}: {await response.text()}")
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            # This process has the same cores as the server, so only what must be is parsed.
            if b'"choices":[{' in line:
                times.append(time.perf_counter())
            if b'"error"' in line or b'"usage":{' in line:
                chunk = json.loads(line[6:])
                if "error" in chunk:
                    raise RequestFailed(json.dumps(chunk["error"]))
                usage = chunk.get("usage") or usage
    if not times or not usage:
        raise RequestFailed(f"an answer with {len(times)} chunks and {'a' if usage else 'no'} usage")
    return times, usage
