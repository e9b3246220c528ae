"""`penstock bench hits`: how soon a server gives an answer that it has kept."""

import asyncio
import time
from statistics import quantiles

import aiohttp
import click

CACHE = "penstock-cache"


class NotKept(Exception):
    """Raised for an answer that was to be kept, and was not; the message is the server's word for that."""


async def hit_times(url: str, number: int, num_tokens: int, api_key: str | None = None) -> list[float]:
    """Returns how many seconds each of so many equal requests took, one after the other over one connection, once a
    first one has had the answer kept. Raises NotKept."""
    headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
    body = {"inputs": "What is gravity?", "parameters": {"max_new_tokens": num_tokens}}
    times: list[float] = []
    async with aiohttp.ClientSession(url, headers=headers, raise_for_status=True) as session:
        for is_counted in (False, False, *[True] * number):
            begin = time.perf_counter()
            async with session.post("/generate", json=body) as response:
                await response.read()
            took, said = time.perf_counter() - begin, response.headers.get(CACHE, "nothing")
            if is_counted:
                if not said.startswith("hit"):
                    raise NotKept(said)
                times.append(took)
            else:
                await asyncio.sleep(0.1)  # the answer is kept behind the response
    return times


@click.command(context_settings={"show_default": True})
@click.option("--url", default="http://127.0.0.1:3000", help="The server, which has --response-cache.")
@click.option("--requests", "number", default=500, type=click.IntRange(min=2), help="How many are timed.")
@click.option("--tokens", default=32, type=click.IntRange(min=1), help="The most tokens of the answer.")
@click.option("--api-key", envvar="API_KEY", help="Key to send, if the server wants one.")
def main(url: str, number: int, tokens: int, api_key: str | None) -> None:
    """Time answers that a server has kept, by equal requests one after the other."""
    try:
        times = asyncio.run(hit_times(url, number, tokens, api_key))
    except NotKept as error:
        raise click.ClickException(f"the server has not kept the answer: `{CACHE}` says {error}") from error
    except aiohttp.ClientError as error:
        raise click.ClickException(str(error)) from error
    places = quantiles(times, n=100, method="inclusive")
    print(f"{number} hits, ms: p50 {places[49] * 1e3:.2f}, p90 {places[89] * 1e3:.2f}, p99 {places[98] * 1e3:.2f}")
