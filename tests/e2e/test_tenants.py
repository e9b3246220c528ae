"""Tenants of a real server, whose routers for clients are two processes: a flood of one leaves the other its share."""

import asyncio
import re
from collections import Counter
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.server import Server, serve

NUM_SLOTS = 4
KEYS = """\
# name: alice
# share: 1
sk-alice
# name: bob
# share: 1
sk-bob
# name: carol
# rate: 2/h
sk-carol
"""


class Clients:
    """Clients of some tenants, and how much service each of these got in answers."""

    def __init__(self, server: Server, session: aiohttp.ClientSession) -> None:
        self._server = server
        self._session = session
        self._number = 0
        self.served: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.changed = asyncio.Event()

    async def ask(self, name: str) -> int:
        """Sends a request, and returns its status once it is answered."""
        self._number += 1
        body = {"model": "tgi", "prompt": f"{self._number} def f(", "max_tokens": 16, "ignore_eos": True}
        async with self._session.post(f"{self._server.url}/v1/completions", json=body,
                                      headers={"authorization": f"Bearer sk-{name}"}) as response:
            answer = await response.json()
        if response.status == 200:
            self.served[name] += answer["usage"]["prompt_tokens"] + 2 * answer["usage"]["completion_tokens"]
            self.answered[name] += 1
            self.changed.set()
        return response.status

    async def until(self, name: str, number: int) -> None:
        """Waits until so many of a tenant's requests were answered."""
        while self.answered[name] < number:
            self.changed.clear()
            await self.changed.wait()


    async def until_all_wait(self, number: int) -> None:
        """Waits until all of so many requests are in the engine's process, or answered."""
        num_waiting = 0
        while num_waiting + NUM_SLOTS + self.answered.total() < number:
            async with self._session.get(f"{self._server.url}/metrics") as response:
                found = re.search(r"^tgi_queue_size(?:{.*})? (\d+)", await response.text(), re.MULTILINE)
            num_waiting = int(found[1]) if found else 0


async def check(server: Server) -> None:
    """Requests are all sent at once, so that both tenants wait all the time, however slow the clients are."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True)) as session:
        clients = Clients(server, session)
        flood = [asyncio.create_task(clients.ask("alice")) for _ in range(300)]
        await clients.until_all_wait(300)
        before = clients.answered["alice"]
        assert await clients.ask("bob") == 200
        passed = clients.answered["alice"] - before
        assert passed <= 5 * NUM_SLOTS, f"{passed} requests of 300 were answered before one of another tenant"
        flood += [asyncio.create_task(clients.ask("bob")) for _ in range(50)]
        await clients.until_all_wait(351)
        start = clients.served.copy()
        await clients.until("bob", 51 - NUM_SLOTS)
        got = [clients.served[name] - start[name] for name in ("alice", "bob")]
        for task in flood:
            task.cancel()
        await asyncio.gather(*flood, return_exceptions=True)
        assert sum(got) ** 2 / (2 * sum(each ** 2 for each in got)) >= 0.95, got
        assert [await clients.ask("carol") for _ in range(4)] == [200, 200, 429, 429]


@pytest.mark.slow
def test_a_flood_of_one_tenant_leaves_the_other_its_share(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(KEYS)
    with serve(tmp_path, "--api-key-file", str(keys), "--max-batch-size", str(NUM_SLOTS), "--api-workers", "2",
               "--max-concurrent-requests", "400") as server:
        asyncio.run(check(server))
