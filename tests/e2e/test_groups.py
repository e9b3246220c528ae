"""Several groups: shards are killed, stopped and drained amid streams, which go on in another group, to the bit."""

import asyncio
import random
import signal
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import pytest

from penstock.router.fleet.client import ShardClient
from tests.e2e.asks import Ask, make_asks, struck, undisturbed
from tests.e2e.client import many_clients, scrape
from tests.e2e.prompts import source
from tests.e2e.server import Server, serve_groups
from tests.e2e.test_poison import marked as marked
from tests.e2e.test_poison import poison

SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 40}, "size": {"type": "integer"},
                                           "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 6}},
          "required": ["name", "size", "tags"]}
MOST_DEATHS = 10
"""How often one request may kill groups: one death where it came, then as often as in a single group."""


def mixed(rng: random.Random, number: int, longest: int) -> list[Ask]:
    """Greedy and sampled, with stop strings and penalties; a quarter follows a grammar."""
    asks = make_asks(rng, number, longest)
    for ask in asks[::4]:
        ask.parameters.pop("stop", None)
        ask.parameters["grammar"] = {"type": "json", "value": SCHEMA}
    return asks


async def drain(group: Server, is_draining: bool) -> None:
    client = ShardClient(f"127.0.0.1:{group.port}")
    await client.drain(is_draining)
    await client.close()


async def busiest(session: aiohttp.ClientSession, server: Server, groups: Sequence[Server]) -> Server:
    """The group with the most requests that run."""
    series = await scrape(session, server.url)
    return max(groups, key=lambda group: series[f'penstock_group_batch_size{{group="127.0.0.1:{group.port}"}}'])


async def until_serving(session: aiohttp.ClientSession, server: Server, number: int) -> None:
    while (await scrape(session, server.url))['penstock_groups{state="serving"}'] != number:
        await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("number", [pytest.param(2, marks=pytest.mark.every_case), 3])
@pytest.mark.timeout(600)
async def test_kills_hangs_and_drains(tmp_path: Path, number: int, every_case: bool) -> None:
    """Guesses, grammars, logprobs, stop strings: whatever befalls one group, another goes on."""
    rng = random.Random(number)
    asks = mixed(rng, 16, longest=240)
    kinds = ["kill", "hang", "drain"] if number == 3 else ["kill", "kill"]
    with serve_groups(tmp_path, number, "--speculate", "4", "--step-timeout", "5",
                      router=["--speculate", "4"]) as (server, groups):
        async with many_clients() as session:
            wanted = await undisturbed(session, server.url, asks)
            num_tokens = sum(len(answer.ids) for answer in wanted)
            for kind in ["kill"] * 20 if every_case else kinds:
                before = await scrape(session, server.url)

                async def blow(kind: str = kind) -> None:
                    group = await busiest(session, server, groups)
                    if kind == "drain":
                        await drain(group, True)
                    else:
                        [shard] = group.shards().values()
                        shard.send_signal(signal.SIGKILL if kind == "kill" else signal.SIGSTOP)

                answers, _ = await struck(session, server.url, asks, round(rng.uniform(0.05, 0.5) * num_tokens), blow)
                different = [case for case in zip(asks, answers, wanted, strict=True) if case[1] != case[2]]
                assert not different
                cause = {"kill": "lost", "hang": "stuck", "drain": "drained"}[kind]
                name = f'penstock_moved_requests{{cause="{cause}"}}'
                after = await scrape(session, server.url)
                print(f"{kind} of one of {number} groups: {after[name] - before[name]:.0f} streams moved")
                assert after[name] > before[name]
                if kind == "drain":
                    for group in groups:
                        await drain(group, False)
                await until_serving(session, server, number)
                assert (await scrape(session, server.url))['penstock_kv_blocks{state="used"}'] == 0


@pytest.mark.slow
@pytest.mark.usefixtures("marked")
async def test_a_poisoned_request_takes_nobody_with_it(tmp_path: Path) -> None:
    rng = random.Random(5)
    asks = make_asks(rng, 12, longest=240)
    with serve_groups(tmp_path, 2) as (server, groups):
        async with many_clients() as session:
            wanted = await undisturbed(session, server.url, asks)
            found: list[tuple[int, dict[str, str]]] = []

            async def blow() -> None:
                found.append(await poison(session, server, source(rng, 1)[:4].strip() or "one"))

            answers, _ = await struck(session, server.url, asks, 100, blow)
            assert answers == wanted
            assert found[0][0] == 424, found
            deaths = sum(group.log.read_text().count("starting all shards again") for group in groups)
            assert 3 <= deaths <= MOST_DEATHS, f"{deaths} deaths"
            again = await poison(session, server, source(rng, 1)[:4].strip() or "one")
            assert again[0] == 424
