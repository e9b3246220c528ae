"""Clients whose connections are their own: they leave, read slowly, close the half they write to, or never say all."""

import asyncio
import http.client
import io
import json
import random
import socket
import struct
import time

from tests.faults.clients import HANG_SECONDS, PAUSE_SECONDS, Clients, Reply
from tests.faults.ledger import Loss
from tests.faults.load import Ask

NUM_ODD = 4
SLOW_BYTES = 512
ALL_BYTES = 1 << 16
SLOW_SECONDS = 0.02
RESET = struct.pack("ii", 1, 0)
"""For SO_LINGER: closing sends a reset at once."""


async def leave(clients: Clients, url: tuple[str, int], seed: int) -> None:
    """Some ask and go away before the end, half of them with a reset; nobody else must notice."""
    rng = random.Random(seed)
    for ask in rng.sample(clients.asks, NUM_ODD):
        connection = await _send(url, ask)
        try:
            async with asyncio.timeout(rng.uniform(0, 0.5)):
                await _read_slowly(connection, bytearray(), ALL_BYTES, pause=0)
        except (TimeoutError, OSError):
            pass
        finally:
            if rng.random() < 0.5:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            connection.close()


async def read_slowly(clients: Clients, url: tuple[str, int], seed: int) -> None:
    """Some take their answers in small pieces, through small buffers; they get them whole."""
    await _ask_oddly(clients, url, seed, ends_its_half=False, pause=SLOW_SECONDS)


async def half_close(clients: Clients, url: tuple[str, int], seed: int) -> None:
    """Some send no more once they have asked; they get their answers."""
    await _ask_oddly(clients, url, seed, ends_its_half=True, pause=0)


async def send_half(url: tuple[str, int], seconds: float, seed: int) -> None:
    """Some send a part of a request, and nothing for a while."""
    rng = random.Random(seed)
    request = _request(Ask("", "/generate", {"inputs": "import os\n", "parameters": {}}))
    connections = [await _connect(url) for _ in range(NUM_ODD)]
    for connection in connections:
        await asyncio.get_running_loop().sock_sendall(connection, request[:rng.randrange(len(request))])
    await asyncio.sleep(seconds)
    for connection in connections:
        connection.close()


async def _ask_oddly(
    clients: Clients, url: tuple[str, int], seed: int, *, ends_its_half: bool, pause: float
) -> None:
    places = random.Random(seed).sample(range(len(clients.asks)), NUM_ODD)
    async with asyncio.TaskGroup() as tasks:
        for place in places:
            tasks.create_task(_ask_one(clients, url, place, ends_its_half, pause))


async def _ask_one(clients: Clients, url: tuple[str, int], place: int, ends_its_half: bool, pause: float) -> None:
    ask = clients.asks[place]
    while not isinstance(result := await _attempt(ask, url, ends_its_half, pause), Reply):
        clients.judge(ask, result)
        await asyncio.sleep(PAUSE_SECONDS)
    clients.compare(place, result)


async def _attempt(ask: Ask, url: tuple[str, int], ends_its_half: bool, pause: float) -> Reply | Loss:
    began_at, received = time.monotonic(), bytearray()
    try:
        async with asyncio.timeout(HANG_SECONDS):
            connection = await _send(url, ask)
            with connection:
                if ends_its_half:
                    connection.shutdown(socket.SHUT_WR)
                await _read_slowly(connection, received, SLOW_BYTES if pause else ALL_BYTES, pause)
        return _parse(received)
    except TimeoutError:
        return Loss(began_at, time.monotonic(), f"nothing within {HANG_SECONDS:g} s", bool(received), False)
    except (OSError, http.client.HTTPException) as error:
        return Loss(began_at, time.monotonic(), f"{type(error).__name__}: {error}", bool(received), True)


async def _connect(url: tuple[str, int]) -> socket.socket:
    connection = socket.socket()
    connection.setblocking(False)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    try:
        await asyncio.get_running_loop().sock_connect(connection, url)
    except BaseException:
        connection.close()
        raise
    return connection


async def _send(url: tuple[str, int], ask: Ask) -> socket.socket:
    connection = await _connect(url)
    await asyncio.get_running_loop().sock_sendall(connection, _request(ask))
    return connection


async def _read_slowly(connection: socket.socket, received: bytearray, num_bytes: int, pause: float) -> None:
    while piece := await asyncio.get_running_loop().sock_recv(connection, num_bytes):
        received += piece
        await asyncio.sleep(pause)


def _request(ask: Ask) -> bytes:
    body = json.dumps(ask.body).encode()
    return (f"POST {ask.path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n"
            f"content-length: {len(body)}\r\n\r\n").encode() + body


class _Received(io.BytesIO):
    """Bytes that came, as a socket for http.client."""

    def makefile(self, mode: str) -> io.BytesIO:
        return self


def _parse(received: bytearray) -> Reply:
    response = http.client.HTTPResponse(_Received(received))  # type: ignore[arg-type]
    response.begin()
    return Reply(response.status, response.read().decode(), [])
