"""The launcher dies, or gives up: what clients get then, and that nothing is left of the server."""

import asyncio
import os
import signal
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import psutil
import pytest

from penstock.bench.programs.children import free_port
from tests.e2e.client import Answer, events, many_clients, stream, until_running
from tests.e2e.prompts import source
from tests.e2e.server import Server, serve
from tests.processes import is_alive, send

LOOPBACK = ("127.0.0.1", "::1")
PROMPTS = [source(Random(seed), 5) for seed in range(4)]


async def ask_all(session: aiohttp.ClientSession, server: Server) -> list[Answer]:
    return await asyncio.gather(*(stream(session, server.url, prompt, max_new_tokens=600) for prompt in PROMPTS))


async def every_event(session: aiohttp.ClientSession, server: Server, prompt: str) -> list[dict[str, Any]]:
    return [event async for event in events(session, server.url, prompt, max_new_tokens=600)]


async def plain(session: aiohttp.ClientSession, server: Server) -> tuple[int, dict[str, Any]]:
    body = {"inputs": PROMPTS[0], "parameters": {"max_new_tokens": 600}}
    async with session.post(f"{server.url}/generate", json=body) as response:
        return response.status, await response.json()


async def until_refused(server: Server) -> None:
    """Wait until nobody listens at the server's port."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.close()
        except ConnectionRefusedError:
            return
        except ConnectionResetError:
            pass
        await asyncio.sleep(0.01)


async def until_gone(processes: list[psutil.Process], folder: Path) -> None:
    while [process for process in processes if is_alive(process)] or os.listdir(folder):
        await asyncio.sleep(0.02)


def kill(server: Server) -> list[psutil.Process]:
    """Kills the launcher, and returns the processes that it had."""
    processes = server.processes()
    server.process.kill()
    server.process.wait()
    return processes


def listeners(server: Server) -> set[tuple[str, int]]:
    """The addresses at which any of the processes takes connections."""
    return {tuple(connection.laddr) for process in (psutil.Process(server.process.pid), *server.processes())
            for connection in process.net_connections("tcp") if connection.status == psutil.CONN_LISTEN}


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_streams_outlive_the_launcher(tmp_path: Path) -> None:
    with serve(tmp_path, "--num-shard", "2") as server:
        async with many_clients() as session:
            undisturbed = await ask_all(session, server)
            running = asyncio.create_task(ask_all(session, server))
            await until_running(session, server.url, len(PROMPTS))
            processes = kill(server)
            await until_refused(server)
            assert not running.done(), "or the streams ended before the router knew"
            assert await running == undisturbed
            await until_gone(processes, tmp_path / "tmp")


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_streams_that_lose_launcher_and_shards_are_told_at_once(tmp_path: Path) -> None:
    with serve(tmp_path, "--num-shard", "2", "--max-shard-downtime", "1000") as server:
        async with many_clients() as session:
            streams = [asyncio.create_task(every_event(session, server, prompt)) for prompt in PROMPTS[1:]]
            request = asyncio.create_task(plain(session, server))
            await until_running(session, server.url, len(PROMPTS))
            shard = server.shards()[0]
            processes = kill(server)
            await until_refused(server)
            shard.kill()
            for received in await asyncio.gather(*streams):
                assert received[-1]["error_type"] == "healthcheck", received[-1]
                assert all("token" in event for event in received[:-1])
            assert (await request)[0] == 503
            await until_gone(processes, tmp_path / "tmp")


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_everybody_is_told_that_the_launcher_gives_up(tmp_path: Path) -> None:
    master_port = free_port()
    with serve(tmp_path, "--num-shard", "2", "--hostname", "0.0.0.0", "--master-port", str(master_port)) as server:
        async with many_clients() as session:
            streams = [asyncio.create_task(every_event(session, server, prompt)) for prompt in PROMPTS[1:]]
            request = asyncio.create_task(plain(session, server))
            await until_running(session, server.url, len(PROMPTS))
            processes, found = server.processes(), listeners(server)
            assert {address for address in found if address[0] not in LOOPBACK} == {("0.0.0.0", server.port)}
            assert master_port in {port for _, port in found}
            while server.process.poll() is None:
                for shard in server.children("shard"):
                    send(shard, signal.SIGKILL)
                await asyncio.sleep(0.01)
            for received in await asyncio.gather(*streams):
                assert received[-1]["error_type"] == "healthcheck", received[-1]
                assert all("token" in event for event in received[:-1])
            assert (await request)[0] == 503
        assert server.process.returncode == 1
        assert "The shards died 5 times in a row without a completed step" in server.log.read_text()
        await until_gone(processes, tmp_path / "tmp")
