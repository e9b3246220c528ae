"""The compose deployment, with Debian's packages in place of images that cannot be had: it answers, is seen, lasts."""

import asyncio
import json
import os
import re
import secrets
import signal
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.bench.programs.children import free_port
from tests.deploy.containers import images
from tests.deploy.containers.container import Container
from tests.deploy.containers.engine import Engine
from tests.deploy.test_boards import expressions
from tests.e2e.client import events, generate, many_clients, stream, whole
from tests.paths import ROOT

FOLDER = ROOT / "deploy/compose"
SERVICES = ("penstock", "prometheus", "collector")
REPLICAS = ("penstock-b", "balancer")
START_SECONDS = 30.0
OF_OTHER_SERVERS = {"penstock_group_batch_size", "penstock_group_kv_blocks", "penstock_group_queue_size",
                    "penstock_output_findings_total", "penstock_budget_refusals_total", "penstock_usage_cost_total",
                    "penstock_usage_requests_total", "penstock_usage_step_seconds_total", "penstock_usage_tokens_total"}
"""The series that only the router of several groups has, one that checks answers, and one that has priced keys."""


class Deployment:
    """The services that run, and where they answer."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.seconds = 0.0
        """How long it took until the server answered."""
        self.ports = {name: free_port() for name in ("PENSTOCK_PORT", "BALANCER_PORT", "PROMETHEUS_PORT")}
        self.url = f"http://127.0.0.1:{self.ports['PENSTOCK_PORT']}"
        self.variables = {
            **{name: str(port) for name, port in self.ports.items()}, "COMPOSE_PROJECT_NAME": "penstock-test",
            "COMPOSE_PROFILES": "replicas", "PENSTOCK_IMAGE": images.SERVER, "NUM_SHARD": "2", "KV_MEMORY": "128MiB",
            "PROMETHEUS_IMAGE": images.build_standin(engine, "prometheus"),
            "NGINX_IMAGE": images.build_standin(engine, "nginx"),
            "COLLECTOR_IMAGE": images.build_standin(engine, "collector", base=images.SERVER),
        }

    def compose(self, *arguments: str) -> str:
        return self.engine.compose(FOLDER, *arguments, **self.variables)

    def container(self, service: str, port: str = "PENSTOCK_PORT") -> Container:
        return Container(self.engine, self.compose("ps", "--quiet", service), self.ports[port])

    def query(self, expression: str) -> list[Any]:
        """Returns what Prometheus finds."""
        question = urllib.parse.urlencode({"query": expression})
        url = f"http://127.0.0.1:{self.ports['PROMETHEUS_PORT']}/api/v1/query?{question}"
        with urllib.request.urlopen(url, timeout=10) as response:
            return list(json.load(response)["data"]["result"])


@pytest.fixture(scope="module")
def deployment(engine: Engine) -> Iterator[Deployment]:
    deployment = Deployment(engine)
    # No image of Jaeger's can be made of Debian's packages: the collector goes without what it depends on.
    up = ("up", "--detach", "--no-build", "--no-deps")
    start = time.monotonic()
    try:
        deployment.compose(*up, *SERVICES)
        deployment.container("penstock").wait_until_ready()
        deployment.seconds = time.monotonic() - start
        deployment.compose(*up, *REPLICAS)
        yield deployment
    finally:
        deployment.compose("down", "--volumes", "--timeout", "1")


async def until(is_so: Callable[[], object], container: Container, seconds: float = 60) -> None:
    """Waits for what other processes do."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(container.log())
        await asyncio.sleep(0.2)


def is_process_of(container: Container) -> bool:
    """Tells whether the container's process 1 is that process of this machine, and not one of another."""
    with suppress(OSError):
        command = Path(f"/proc/{container.pid}/cmdline").read_bytes().split(b"\0")
        return command[:3] == [b"tini", b"--", b"text-generation-launcher"] and os.geteuid() == 0
    return False


async def test_it_answers_soon(deployment: Deployment) -> None:
    async with many_clients() as session:
        assert len((await generate(session, deployment.url, "def open(path):", max_new_tokens=8)).ids) == 8
    print(f"{deployment.seconds:.1f} s from `compose up`, for a server of two shards")
    assert deployment.seconds <= START_SECONDS


async def test_a_trace_holds_the_spans_of_router_and_shards(deployment: Deployment) -> None:
    trace = secrets.token_hex(16)
    async with many_clients() as session:
        session.headers["traceparent"] = f"00-{trace}-{secrets.token_hex(8)}-01"
        await stream(session, deployment.url, "def open(path):", max_new_tokens=4)

    def processes() -> set[str]:
        lines = (line.split(maxsplit=2) for line in deployment.container("collector").log().splitlines())
        return {process for found, process, _ in lines if found == trace}

    await until(lambda: processes() == {"router", "shard-0", "shard-1"}, deployment.container("collector"))


async def test_prometheus_has_every_series_that_boards_and_rules_name(deployment: Deployment) -> None:
    named = {name for expression in expressions() for name in re.findall(r"\b((?:tgi|penstock)_\w+|up)\b", expression)}
    assert named > OF_OTHER_SERVERS
    named -= OF_OTHER_SERVERS
    await until(lambda: not [name for name in named if not deployment.query(f'{name}{{container="penstock"}}')],
                deployment.container("prometheus"))
    assert {each["metric"]["container"] for each in deployment.query("up")} == {"penstock", "penstock-b"}


async def test_the_balancer_asks_both(deployment: Deployment) -> None:
    url = f"http://127.0.0.1:{deployment.ports['BALANCER_PORT']}"
    counted = "sum by (container) (tgi_request_count)"
    second = deployment.container("penstock-b")

    def counts() -> dict[str, float]:
        return {each["metric"]["container"]: float(each["value"][1]) for each in deployment.query(counted)}

    before = counts()
    async with many_clients() as session:
        await until(lambda: second.state["Health"]["Status"] == "healthy", second)
        for _ in range(4):
            assert (await generate(session, url, "def open(path):", max_new_tokens=4)).ids
    await until(lambda: all(counts().get(name, 0) > before.get(name, 0) for name in ("penstock", "penstock-b")), second)


async def test_a_stop_under_load_loses_no_answer(deployment: Deployment) -> None:
    server = deployment.container("penstock")
    async with many_clients() as session:
        alone = [await stream(session, server.url, f"def open_{number}(path):", max_new_tokens=200, seed=number,
                              do_sample=True) for number in range(4)]
        begun = asyncio.Semaphore(0)

        async def ask(number: int) -> list[dict[str, Any]]:
            received = []
            async for event in events(session, server.url, f"def open_{number % 4}(path):", max_new_tokens=200,
                                      seed=number % 4, do_sample=True):
                received.append(event)
                if len(received) == 1:
                    begun.release()
            return received

        tasks = [asyncio.create_task(ask(number)) for number in range(16)]
        for _ in tasks:
            await begun.acquire()
        await asyncio.to_thread(deployment.compose, "stop", "penstock")
        assert [whole(received) for received in await asyncio.gather(*tasks)] == alone * 4
    assert server.state["ExitCode"] == 0
    deployment.compose("start", "penstock")
    deployment.container("penstock").wait_until_ready()


async def test_a_kill_of_process_1_is_followed_by_service(deployment: Deployment) -> None:
    server = deployment.container("penstock")
    if not is_process_of(server):
        pytest.skip("the engine's processes are not this machine's, so that none can be killed")
    os.kill(server.pid, signal.SIGKILL)
    await until(lambda: server.inspect()["RestartCount"] == 1, server)
    server.wait_until_ready()
    async with many_clients() as session:
        assert (await generate(session, server.url, "def open(path):", max_new_tokens=4)).ids
