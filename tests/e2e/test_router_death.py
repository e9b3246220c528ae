"""The router dies, hangs, or has shards to find again: the server goes on, and its door stays open."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import psutil
import pytest

from tests.e2e.client import Answer, generate
from tests.e2e.server import Server, serve

INPUTS = "import os\n\n\ndef walk(path):\n"
NUM_KILLS = 6
STEP_TIMEOUT = 5


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    with serve(folder, "--num-shard", "2", "--step-timeout", str(STEP_TIMEOUT), "--shard-uds-path",
               str(folder / "uds")) as server:
        assert socket_folder(server).is_dir()
        yield server
    assert not socket_folder(server).exists()


def socket_folder(server: Server) -> Path:
    return server.log.parent / "uds"


@asynccontextmanager
async def clients() -> AsyncIterator[aiohttp.ClientSession]:
    """A session that connects anew for each request."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
        yield session


async def ask(session: aiohttp.ClientSession, server: Server) -> Answer:
    return await generate(session, server.url, INPUTS, max_new_tokens=20)


async def keep_connecting(server: Server) -> None:
    """Connects and leaves, in a loop, until it is cancelled; raises ConnectionRefusedError where nobody listens."""
    while True:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.close()
        await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_routers_that_serve_may_die_as_often_as_they_like(server: Server) -> None:
    shards, routers = server.shards(), set()
    async with clients() as session:
        undisturbed = await ask(session, server)
        connecting = asyncio.create_task(keep_connecting(server))
        for _ in range(NUM_KILLS):
            [router] = server.children("router")
            routers.add(router)
            router.kill()
            assert await ask(session, server) == undisturbed, "sent while no router runs"
        assert not connecting.done(), connecting.exception()
        connecting.cancel()
    assert len(routers) == NUM_KILLS
    assert server.shards() == shards


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_router_that_is_stopped_is_replaced(server: Server) -> None:
    shards, [router] = server.shards(), server.children("router")
    async with clients() as session:
        undisturbed = await ask(session, server)
        router.suspend()
        assert await ask(session, server) == undisturbed, "sent while the router is stopped"
    assert not router.is_running()
    assert server.shards() == shards
    assert "the router has given no sign of life for" in server.log.read_text()


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_folder_of_sockets_that_is_removed_is_made_again(server: Server) -> None:
    folder = socket_folder(server)
    async with clients() as session:
        undisturbed = await ask(session, server)
        shutil.rmtree(folder)
        assert await ask(session, server) == undisturbed
        while 0 not in (shards := server.shards()):  # a shard that has lost its socket is started again at any moment
            await asyncio.sleep(0.02)
        shards[0].kill()
        assert await ask(session, server) == undisturbed
    assert {path.name for path in folder.iterdir()} == {"shard-0", "shard-1"}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


@pytest.mark.slow
def test_a_second_server_with_the_same_folder_is_refused(server: Server) -> None:
    second = psutil.Process(server.process.pid).cmdline()
    refused = subprocess.run([*second, "--port", "0"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert f"`shard_uds_path`: {socket_folder(server)} is in use by another server\n" in refused.stderr
