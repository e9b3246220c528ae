"""A server whose clients are answered by several processes: each of its processes may die, and none of the engine's
deaths breaks a stream."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import psutil
import pytest

from penstock.bench.programs.children import free_port
from penstock.protos import penstock_pb2, services
from tests.e2e.client import Answer, events, many_clients, scrape, stream, whole
from tests.e2e.server import Server, serve
from tests.eventually import until

NUM_KILLS = 3
ASKED: list[dict[str, Any]] = [
    {"max_new_tokens": 150}, {"max_new_tokens": 150, "do_sample": True, "seed": 7},
    {"max_new_tokens": 150, "top_n_tokens": 3}, {"max_new_tokens": 400, "stop": ["return"]},
    {"max_new_tokens": 80, "grammar": {"type": "regex", "value": "[a-z ]{60,70}"}},
    {"max_new_tokens": 150, "repetition_penalty": 1.2, "temperature": 0.8, "seed": 3}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve(tmp_path_factory.mktemp("server"), "--api-workers", "2", "--grpc-port", str(free_port())) as server:
        yield server


def of_role(server: Server, role: str) -> list[psutil.Process]:
    """Processes of the router that do this."""
    return [each for each in server.children("router") if f'"role":"{role}"' in " ".join(each.cmdline())]


async def ask_all(session: aiohttp.ClientSession, server: Server) -> list[Answer]:
    return await asyncio.gather(*(
        stream(session, server.url, f"def walk{number}(path):\n", **ASKED[number % len(ASKED)])
        for number in range(18)))


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_the_engines_process_and_shards_die_and_no_stream_breaks(server: Server) -> None:
    async with many_clients() as session:
        undisturbed = await ask_all(session, server)
        for number in range(NUM_KILLS):
            asking = asyncio.create_task(ask_all(session, server))
            await asyncio.sleep(0.2 + 0.2 * number)
            [engine] = of_role(server, "engine")
            engine.kill()
            if number == 1:
                server.shards()[0].kill()
            assert await asking == undisturbed
        assert await ask_all(session, server) == undisturbed


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_worker_dies_and_only_its_own_clients_notice(server: Server) -> None:
    async with many_clients() as session:
        undisturbed = await ask_all(session, server)
        asking = [asyncio.create_task(stream(session, server.url, f"def walk{number % 18}(path):\n",
                                             **ASKED[number % len(ASKED)])) for number in range(36)]
        await asyncio.sleep(0.2)
        of_role(server, "front")[0].kill()
        answers = await asyncio.gather(*asking, return_exceptions=True)
        left = [answer == undisturbed[number % 18] for number, answer in enumerate(answers)
                if not isinstance(answer, BaseException)]
        assert all(left)
        assert 0 < len(left) < len(answers), "both workers had clients"
        while len(of_role(server, "front")) < 2:
            await asyncio.sleep(0.05)
        assert await ask_all(session, server) == undisturbed


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_each_request_has_its_line_whichever_worker_answers_it(server: Server) -> None:
    names = [f"line-{number}" for number in range(100)]  # fewer than may be there at once
    async with many_clients() as session:
        async def ask(name: str) -> None:
            headers = {"x-request-id": name}
            async with session.post(f"{server.url}/tokenize", json={"inputs": "a"}, headers=headers) as response:
                assert response.status == 200

        await asyncio.gather(*map(ask, names))
    line = re.compile(r"\S+Z  INFO penstock\.requests: POST /tokenize 200 request_id=(line-\d+) "
                      r'route="POST /tokenize" status=200 total_time=\d+\.\d+s')

    def told() -> list[str]:
        return sorted(found[1] for text in server.log.read_text().splitlines() if (found := line.fullmatch(text)))

    await until(lambda: len(told()) >= len(names))  # a request's line is written behind its answer
    assert told() == sorted(names)
    assert re.search(r"each of 2 processes for clients: at most \d+ MiB of memory: .* for large bodies.* long texts",
                     server.log.read_text())


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_either_worker_tells_the_series_of_all(server: Server) -> None:
    async with many_clients() as session:
        before = await scrape(session, server.url)
        await asyncio.gather(*(stream(session, server.url, "a", max_new_tokens=5) for _ in range(20)))
        series = [await scrape(session, server.url) for _ in range(6)]
    named = {name.partition('"')[2].rstrip('"}') for name in series[0] if name.startswith("process_cpu_seconds_total")}
    assert named == {"launcher", "engine", "front-0", "front-1", *(f"shard-{n}" for n in range(len(server.shards())))}
    for found in series:
        assert found["tgi_request_count"] - before["tgi_request_count"] == 20
        assert found["tgi_request_success"] - before["tgi_request_success"] == 20
        assert found["tgi_request_generated_tokens_sum"] - before["tgi_request_generated_tokens_sum"] == 100
        assert found["penstock_generated_tokens"] - before["penstock_generated_tokens"] >= 100
        assert found["tgi_batch_current_size"] == 0
        assert found['penstock_kv_blocks{state="free"}'] > 0


@pytest.mark.slow
async def test_all_workers_answer_by_grpc(server: Server) -> None:
    command = psutil.Process(server.process.pid).cmdline()
    port = command[command.index("--grpc-port") + 1]
    request = penstock_pb2.GenerateRequest(
        inputs="def walk(path):", parameters=penstock_pb2.Parameters(max_new_tokens=10))
    texts = set()
    for _ in range(8):
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1)]) as channel:
            texts.add((await services.stub(channel, penstock_pb2).Generate(request)).generated_text)
    assert len(texts) == 1


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_what_runs_is_finished_after_sigterm(tmp_path: Path) -> None:
    with serve(tmp_path, "--api-workers", "2") as server:
        async with many_clients() as session:
            running = [events(session, server.url, f"def walk{number}(path):\n", max_new_tokens=400)
                       for number in range(8)]
            begun = [[await anext(each)] for each in running]
            server.process.terminate()
            for each, answer in zip(running, begun, strict=True):
                answer += [event async for event in each]
                assert json.dumps(whole(answer).ids)
        assert await asyncio.to_thread(server.process.wait, 30) == 0
