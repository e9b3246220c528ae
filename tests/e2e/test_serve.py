"""The whole way on the demo model and two shards: start, answers, drain, a killed router."""

import asyncio
import io
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import aiohttp
import pytest
from huggingface_hub import InferenceClient

from tests.e2e.client import Answer, generate, stream, until_idle, until_running
from tests.e2e.server import Server, serve

SOURCE = "import os\n\n\ndef walk(path):\n"
"""A prompt that the demo model goes on with for long."""


async def test_stream_and_plain_agree(server: Server) -> None:
    parameters = {"max_new_tokens": 40, "do_sample": True, "seed": 11, "temperature": 0.8, "top_p": 0.9,
                  "repetition_penalty": 1.1}
    async with aiohttp.ClientSession() as session:
        plain = await generate(session, server.url, SOURCE, **parameters)
        streamed = await stream(session, server.url, SOURCE, **parameters)
    assert plain == streamed
    assert len(plain.ids) > 1


async def test_other_requests_change_nothing(server: Server) -> None:
    async with aiohttp.ClientSession() as session:
        alone = await stream(session, server.url, SOURCE, max_new_tokens=30, seed=5, do_sample=True)
        together = await asyncio.gather(*(
            stream(session, server.url, SOURCE if i == 3 else "x" * 50 * i + "y", max_new_tokens=30,
                   seed=5 if i == 3 else i, do_sample=True)
            for i in range(8)))
    assert together[3] == alone


async def test_bad_requests_harm_nobody(server: Server) -> None:
    async with aiohttp.ClientSession() as session:
        running = asyncio.create_task(stream(session, server.url, SOURCE, max_new_tokens=60))
        for body, status in [(b"{", 400), (b'{"inputs": 3}', 422), (b'{"inputs": ""}', 422), (b"\xff", 400),
                             (b'{"inputs": "' + b"x" * 3_000_000 + b'"}', 413),
                             (b'{"inputs": "x", "parameters": {"temperature": 0}}', 422)]:
            async with session.post(f"{server.url}/generate", data=io.BytesIO(body),
                                    headers={"content-type": "application/json"}) as response:
                assert response.status == status, await response.text()
        assert len((await running).ids) > 1


def test_huggingface_hub(server: Server) -> None:
    client = InferenceClient(server.url)
    pieces = list(client.text_generation(SOURCE, max_new_tokens=20, stream=True))
    whole = client.text_generation(SOURCE, max_new_tokens=20, details=True)
    assert whole.details is not None
    text = "".join(token.text for token in whole.details.tokens if not token.special)
    assert whole.generated_text == SOURCE + text, "TGI's POST / gives the prompt back unless told otherwise"
    assert "".join(pieces).startswith(text)
    assert len(whole.details.tokens) == len(pieces)


async def test_idle_holds_no_block(server: Server) -> None:
    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(stream(session, server.url, SOURCE, max_new_tokens=8) for _ in range(4)))
        await until_idle(session, server.url)


@pytest.mark.slow
async def test_sigterm_drains_and_the_port_is_free_at_once(tmp_path: Path) -> None:
    with serve(tmp_path, "--num-shard", "2") as server:
        async with aiohttp.ClientSession() as session:
            streams = [asyncio.create_task(
                stream(session, server.url, SOURCE + f"# part {i}\n", max_new_tokens=250, seed=i, do_sample=True,
                       temperature=1.5)) for i in range(16)]
            await until_running(session, server.url, len(streams))
            server.process.send_signal(signal.SIGTERM)
            answers = await asyncio.gather(*streams)
        assert all(answer.finish_reason in ("length", "eos_token") for answer in answers)
        assert await asyncio.to_thread(server.process.wait, 30) == 0
        assert not re.findall(r"^[IWEF]\d{4} .*", server.log.read_text(), re.MULTILINE), "gRPC has lines of its own"
    with serve(tmp_path, port=server.port) as second:
        assert second.is_healthy()


@pytest.mark.slow
@pytest.mark.alone
async def test_a_killed_router_is_back_without_reloading_the_weights(tmp_path: Path) -> None:
    with serve(tmp_path, "--num-shard", "2", "--dtype", "float32") as server:
        async with aiohttp.ClientSession() as session:
            undisturbed = await stream(session, server.url, SOURCE, max_new_tokens=20)
        shards = {shard.pid for shard in server.children("shard")}
        assert len(shards) == 2
        for _ in range(2):
            async with aiohttp.ClientSession() as session:
                streams = [asyncio.create_task(stream(session, server.url, SOURCE * 10 * i, max_new_tokens=500))
                           for i in range(1, 9)]
                [router] = server.children("router")
                await until_running(session, server.url, len(streams))
                os.kill(router.pid, signal.SIGKILL)
                killed_at = time.monotonic()
                results = await asyncio.gather(*streams, return_exceptions=True)
                broken = [result for result in results if not isinstance(result, Answer)]
                assert broken, "all had ended before"
                assert all(isinstance(error, aiohttp.ClientError) for error in broken), broken
            await asyncio.to_thread(server.wait_until_healthy)
            assert time.monotonic() - killed_at < 3
            async with aiohttp.ClientSession() as session:
                assert await stream(session, server.url, SOURCE, max_new_tokens=20) == undisturbed
                await until_idle(session, server.url)
            assert {shard.pid for shard in server.children("shard")} == shards


def test_the_health_check(server: Server) -> None:
    """It finds the server at the port that the variable names, as in a container."""
    program = [sys.executable, "-m", "penstock", "health"]
    port = server.url.rpartition(":")[2]
    result = subprocess.run(program, env=os.environ | {"PORT": port}, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, f"the server at 0.0.0.0 port {port} is healthy\n"), result.stderr
