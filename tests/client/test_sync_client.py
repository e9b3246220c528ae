"""The client without an event loop: its thread serves several others, and is gone with it."""

import asyncio
import gc
import os
import signal
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any

import pytest

from penstock.client import Client, InvalidRequest
from tests.client.test_broken_connections import told, url_of
from tests.router.api.conftest import Start
from tests.router.api.resuming import SeededFleet

ENDLESS: dict[str, Any] = {"max_new_tokens": 900, "ignore_eos": True}


def threads_of_clients() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "penstock-client"]


async def test_threads_share_a_client(start: Start) -> None:
    url = url_of(await start(make_fleet=SeededFleet))

    def ask(client: Client, seed: int) -> tuple[list[Any], Any]:
        with client.generate_stream("a", max_new_tokens=12, seed=seed) as stream:
            return [told(event) for event in stream], told(client.generate("a", max_new_tokens=12, seed=seed))

    def ask_all() -> None:
        with Client(url) as client, ThreadPoolExecutor(4) as pool:
            assert not threads_of_clients(), "a process that forks now has a client that works"
            together = list(pool.map(lambda seed: ask(client, seed), range(8)))
            assert together == [ask(client, seed) for seed in range(8)]
            assert len(threads_of_clients()) == 1
            with pytest.raises(InvalidRequest):
                client.generate("a", top_p=2.0)
        assert not threads_of_clients()
        with pytest.raises(RuntimeError, match="has been closed"):
            client.generate("a")

    await asyncio.to_thread(ask_all)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
async def test_a_fork_of_a_process_whose_client_has_begun_is_told(start: Start) -> None:
    """It has no thread, and would wait for ever."""
    url = url_of(await start(make_fleet=SeededFleet))

    def fork() -> int:
        with Client(url) as client:
            client.generate("a", max_new_tokens=1)
            if (child := os.fork()) == 0:
                status = 1
                try:
                    client.generate("a", max_new_tokens=1)
                except RuntimeError as error:
                    status = 0 if "make another client" in str(error) else 2
                finally:
                    os._exit(status)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert await asyncio.to_thread(fork) == 0


async def test_calls_end_when_another_thread_closes_the_client(start: Start) -> None:
    url = url_of(await start(make_fleet=SeededFleet))

    def ask(client: Client) -> None:
        while True:
            client.generate("a", max_new_tokens=1)

    def close() -> None:
        for _ in range(3):
            with ThreadPoolExecutor(4) as pool:
                with Client(url) as client:
                    asking = [pool.submit(ask, client) for _ in range(4)]
                    time.sleep(0.05)
                for each in asking:
                    with pytest.raises((RuntimeError, CancelledError)):
                        each.result(10)

    await asyncio.to_thread(close)
    assert not threads_of_clients()


async def test_a_client_that_is_dropped_leaves_nothing(start: Start) -> None:
    """Neither its thread nor its answers; a stream keeps what it needs of its client."""
    server = await start(make_fleet=SeededFleet)

    def drop() -> None:
        stream = Client(url_of(server)).generate_stream("a", **ENDLESS)
        assert [next(stream).index, next(stream).index] == [1, 2]
        del stream
        gc.collect()
        assert not threads_of_clients()

    await asyncio.to_thread(drop)
    await server.until_idle()


async def test_a_stream_that_is_left_ends_at_the_server(start: Start) -> None:
    server = await start(make_fleet=SeededFleet)
    with Client(url_of(server)) as client:
        stream = client.generate_stream("a", **ENDLESS)
        await asyncio.to_thread(next, stream)
        await asyncio.to_thread(stream.close)
        await server.until_idle()
        assert list(stream) == []


def test_an_interrupt_ends_the_wait() -> None:
    """Of the main thread, which hears of Ctrl-C, for a server that is not there."""
    with Client("http://127.0.0.1:9") as client:
        main = threading.main_thread().ident
        assert main is not None
        threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT)).start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            client.generate("a")
        assert time.monotonic() - began < 5
    assert not threads_of_clients()
