"""`penstock bench deadlines`: how many deadlines a server under load promises, and how many of those it misses."""

import asyncio
import time
from dataclasses import dataclass, field
from random import Random
from statistics import median
from typing import Any

import aiohttp
import click

PART = 0.5
"""Of the requests, which have a deadline."""
LONGEST = 6.0
"""The longest deadline, as a multiple of the time that the answer takes alone; the shortest is that time itself."""
TOO_SHORT, TOO_NEAR = 422, 429


@dataclass
class Outcome:
    """Counts the requests with deadlines by their ends, as clients saw them; `late` has the seconds beyond."""

    kept: int = 0
    late: list[float] = field(default_factory=list)
    refused: int = 0
    """Because of others."""
    hopeless: int = 0
    """Even alone."""
    others: int = 0
    """Answers without deadlines."""

    @property
    def promised(self) -> int:
        return self.kept + len(self.late)

    @property
    def missed_part(self) -> float:
        """The part of the promised ones that came late."""
        return len(self.late) / self.promised if self.promised else 0.0

    def lines(self) -> list[str]:
        """Returns the figures for people."""
        asked = self.promised + self.refused + self.hopeless
        worst = f", by {max(self.late):.2f} s at the most" if self.late else ""
        return [f"{asked} deadlines: {self.promised} promised, {self.refused} refused because of others, "
                f"{self.hopeless} too short even alone; {self.others} requests without one",
                f"of those promised {len(self.late)} were missed, {100 * self.missed_part:.1f} %{worst}"]


class Load:
    """Sends requests to a server at random times, of random lengths, half of them with deadlines."""

    def __init__(self, session: aiohttp.ClientSession, seed: int) -> None:
        self._session = session
        self._random = Random(seed)
        self.outcome = Outcome()

    async def run(self, number: int, rate: float) -> Outcome:
        """Sends so many requests, so many a second on average, once it is known how long answers take alone."""
        token = await self._seconds_per_token()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(number):
                await asyncio.sleep(self._random.expovariate(rate))
                words, tokens = self._random.choice((10, 40, 150)), self._random.randint(8, 64)
                deadline = None
                if self._random.random() < PART:
                    deadline = round(1000 * token * (tokens + words / 4) * self._random.uniform(1.0, LONGEST))
                tasks.create_task(self._ask(words, tokens, deadline))
        return self.outcome

    async def _seconds_per_token(self, tries: int = 5) -> float:
        times = []
        for _ in range(tries):
            began_at = time.perf_counter()
            await self._post(self._body(10, 32, None))
            times.append(time.perf_counter() - began_at)
        return median(times) / 32

    def _body(self, words: int, tokens: int, deadline: int | None) -> dict[str, Any]:
        text = " ".join(str(self._random.randrange(1000)) for _ in range(words))
        asked = {} if deadline is None else {"deadline_ms": deadline}
        return {"inputs": text, "parameters": {"max_new_tokens": tokens, "ignore_eos": True, **asked}}

    async def _post(self, body: dict[str, Any]) -> int:
        async with self._session.post("generate", json=body) as response:
            await response.read()
            return response.status

    async def _ask(self, words: int, tokens: int, deadline: int | None) -> None:
        began_at = time.perf_counter()
        status = await self._post(self._body(words, tokens, deadline))
        late = time.perf_counter() - began_at - (deadline or 0) / 1000
        if deadline is None:
            self.outcome.others += status == 200
        elif status == TOO_NEAR:
            self.outcome.refused += 1
        elif status == TOO_SHORT:
            self.outcome.hopeless += 1
        elif late > 0:
            self.outcome.late.append(late)
        else:
            self.outcome.kept += 1


async def measure(url: str, number: int, rate: float, seed: int, api_key: str | None = None) -> Outcome:
    """Sends the load to a server. Raises ClientError if it can't be reached."""
    headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(url.rstrip("/") + "/", headers=headers, connector=connector) as session:
        return await Load(session, seed).run(number, rate)


@click.command(context_settings={"show_default": True})
@click.option("--url", default="http://127.0.0.1:3000", help="The server.")
@click.option("--requests", "number", default=300, type=click.IntRange(min=1), help="How many are sent.")
@click.option("--rate", default=5.0, type=click.FloatRange(min=0, min_open=True), help="How many a second, on average.")
@click.option("--seed", default=0, help="Decides times and lengths.")
@click.option("--api-key", envvar="API_KEY", help="Key to send, if the server wants one.")
def main(url: str, number: int, rate: float, seed: int, api_key: str | None) -> None:
    """Count deadlines that a server under load promises, refuses and misses."""
    try:
        outcome = asyncio.run(measure(url, number, rate, seed, api_key))
    except aiohttp.ClientError as error:
        raise click.ClickException(str(error)) from error
    click.echo("\n".join(outcome.lines()))
