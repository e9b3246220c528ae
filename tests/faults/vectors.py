"""`python -m tests.faults.vectors MODEL` kills shards under clients that ask for vectors, and compares every answer."""

import asyncio
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import click

from penstock.bench.embed.texts import draw_texts, whole_tokenizer
from tests.e2e.server import Server, serve
from tests.faults.clients import Clients, one_shot_clients
from tests.faults.driver import MAX_ROUTER_GROWTH, first_of
from tests.faults.ledger import Ledger
from tests.faults.load import Ask
from tests.faults.scene import PATIENCE_SECONDS, POLL_SECONDS, Broken

NUM_SHARDS = 2
NUM_ASKS, MOST_TEXTS = 60, 8
REST_SECONDS = 1.0
"""How long processes may give memory back before it is counted."""


@dataclass(frozen=True, slots=True)
class Found:
    """The answers that came, the longest wait for one, and the megabytes of each process before and after."""

    answers: int
    longest: float
    before: dict[str, float]
    after: dict[str, float]

    def __str__(self) -> str:
        memory = "; ".join(f"{name} {self.before[name]:.0f} MB before, {self.after[name]:.0f} after"
                           for name in self.before)
        return f"{self.answers} answers, none lost, none changed; the longest took {self.longest:.1f} s. {memory}"


def make_asks(model: Path, longest: int, seed: int) -> list[Ask]:
    """Returns requests of one text or of several, through OpenAI's route and through TEI's."""
    draw = random.Random(seed)
    texts = iter(draw_texts(whole_tokenizer(model), NUM_ASKS * MOST_TEXTS, longest, seed))
    asks = []
    for number in range(NUM_ASKS):
        chosen = [next(texts) for _ in range(draw.randint(1, MOST_TEXTS))]
        asks.append(Ask("OpenAI's", "/v1/embeddings", {"input": chosen, "model": "-", "encoding_format": "base64"})
                    if number % 2 else Ask("TEI's", "/embed", {"inputs": chosen}))
    return asks


async def disturb(server: Server, asks: list[Ask], clients: int, kills: int, seconds: float, seed: int) -> Found:
    """Runs the clients for so many seconds, within which shards are killed. Raises Broken for an answer that is lost or
    another one than before, and where the router's memory grows."""
    ledger = Ledger()
    async with one_shot_clients() as session:
        asking = Clients(session, server.url, ledger, asks)
        await asking.learn()
        await asyncio.gather(*(asking.ask(number) for number in range(NUM_ASKS)))
        before = await _megabytes(server)
        async with asyncio.TaskGroup() as tasks:
            for number in range(clients):
                tasks.create_task(asking.run(f"{seed}-{number}"))
            try:
                for number in range(kills):
                    await asyncio.sleep(seconds / (kills + 1))
                    await _kill(server, number % NUM_SHARDS)
                await asyncio.sleep(seconds / (kills + 1))
            finally:
                asking.may_ask = False
        await _until_ready(session, server)
        after = await _megabytes(server)
    if (grown := after["router"] - before["router"]) > MAX_ROUTER_GROWTH / 1e6:
        raise Broken(f"the router has grown by {grown:.0f} MB")
    return Found(len(ledger.answers), max(end - begin for begin, end, _ in ledger.answers), before, after)


async def _kill(server: Server, rank: int) -> None:
    """Kills the shard of a rank, as soon as there is one."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while rank not in (shards := server.shards()):
        if time.monotonic() > deadline:
            raise Broken(f"there was no shard {rank} within {PATIENCE_SECONDS:g} s")
        await asyncio.sleep(POLL_SECONDS)
    print(f"shard {rank} is killed", flush=True)
    shards[rank].kill()


async def _until_ready(session: aiohttp.ClientSession, server: Server) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        async with session.get(f"{server.url}/readyz") as response:
            if response.status == 200 and len(server.shards()) == NUM_SHARDS:
                return
        if time.monotonic() > deadline:
            raise Broken(f"the server was not ready within {PATIENCE_SECONDS:g} s")
        await asyncio.sleep(POLL_SECONDS)


async def _megabytes(server: Server) -> dict[str, float]:
    """Returns the resident memory of the router and of each shard, after a rest."""
    await asyncio.sleep(REST_SECONDS)
    [router] = server.children("router")
    processes = {"router": router, **{f"shard {rank}": shard for rank, shard in sorted(server.shards().items())}}
    return {name: process.memory_info().rss / 1e6 for name, process in processes.items()}


@click.command()
@click.argument("model", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--seconds", default=60.0, show_default=True, help="How long to go on.")
@click.option("--clients", default=64, show_default=True, help="How many ask at once.")
@click.option("--kills", default=2, show_default=True, help="How often a shard is killed meanwhile.")
@click.option("--longest", default=256, show_default=True, help="Tokens of the longest text.")
@click.option("--seed", default=1, show_default=True, help="The number that texts and requests are drawn from.")
def main(model: Path, seconds: float, clients: int, kills: int, longest: int, seed: int) -> None:
    """Kill shards under clients that ask for vectors, and compare every answer."""
    asks = make_asks(model, longest, seed)
    with TemporaryDirectory(prefix="chaos-") as folder, serve(
            Path(folder), "--num-shard", str(NUM_SHARDS), model=model.resolve()) as server:
        try:
            print(asyncio.run(disturb(server, asks, clients, kills, seconds, seed)))
        except* Broken as errors:
            sys.exit(f"{first_of(errors)}\n{server.log.read_text(errors='replace')[-4000:]}")


if __name__ == "__main__":
    main()
