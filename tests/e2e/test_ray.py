"""Groups and routers on a Ray cluster of two nodes: whatever dies of it, every answer is whole and what it always is."""

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
import yaml

from penstock.bench.programs.children import free_port
from tests.clients.environments import python_of
from tests.e2e.client import Answer, many_clients, metric, stream
from tests.e2e.ray_cluster import RayCluster, ray_cluster
from tests.e2e.test_kill_marathon import Ask, make_asks
from tests.paths import DEMO_MODEL
from tests.processes import is_alive, send

SECONDS_WITHOUT_GCS = 10
"""How long answers must go on after the death of Ray's GCS. Without Redis behind it, nodes leave after 60 seconds."""
FEW, MANY = 2, 12
DELAYS = {"upscale_delay": 2, "downscale_delay": 4}


def written(folder: Path, cluster: RayCluster, port: int) -> str:
    """A cluster.yaml: a router for the node with a `front`, and groups that run four requests, one on each node."""
    file = folder / "cluster.yaml"
    file.write_text(yaml.safe_dump({
        "name": "demo", "model": str(DEMO_MODEL), "address": cluster.address,
        "router": {"port": port, "cpus": 0.1, "resources": {"front": 1}},
        "group": {"cpus": 1, "resources": {"room": 1}, "options": {"kv_memory": "64MiB", "max_batch_size": 4}},
        "scaling": {"max_groups": 2, "target_waiting": 4, "target_running": 4, **DELAYS}}))
    return str(file)


class Load:
    """Streams that run all the time, `number` of them, each of which must be what it was undisturbed."""

    def __init__(self, session: aiohttp.ClientSession, url: str, asks: Sequence[Ask], answers: Sequence[Answer]) -> None:
        self.number = FEW
        self.num_whole = 0
        self._session, self._url = session, url
        self._cases = [*zip(asks, answers, strict=True)]

    async def keep(self, place: int) -> None:
        """Sends one request after the other while at least so many are to run."""
        for index in range(place, 10**9):
            while place >= self.number:
                await asyncio.sleep(0.1)
            ask, answer = self._cases[index % len(self._cases)]
            assert await stream(self._session, self._url, ask.inputs, **ask.parameters) == answer
            self.num_whole += 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Sends requests until the end of the block, and lets the last ones finish. The first fault ends it all."""
        async with asyncio.TaskGroup() as tasks:
            kept = [tasks.create_task(self.keep(place)) for place in range(MANY)]
            yield
            self.number = 0
            for each in kept:
                each.cancel()

    async def go_on(self, number: int = 2 * FEW) -> None:
        """Waits for so many more answers."""
        wanted = self.num_whole + number
        while self.num_whole < wanted:
            await asyncio.sleep(0.05)


async def until(cluster: RayCluster, is_so: Callable[[dict[str, Any]], bool], seconds: float = 60) -> dict[str, Any]:
    """Waits until the keeper tells of what should be, and returns what it tells."""
    deadline = time.monotonic() + seconds
    while not is_so(found := await asyncio.to_thread(cluster.status)):
        assert time.monotonic() < deadline, found
    return found


def ready(found: dict[str, Any]) -> set[str]:
    return {group for group, parts in found["groups"].items() if all(state == "ready" for state, _ in parts)}


def shards(group: str) -> list[psutil.Process]:
    return [process for process in psutil.process_iter(["cmdline"])
            if f'"group": "{group}"' in " ".join(process.info["cmdline"] or []) and is_alive(process)]


@pytest.mark.slow
@pytest.mark.alone
async def test_whatever_dies_answers_go_on(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    asks = make_asks(random.Random(9), 16, longest=150)
    begin = time.monotonic()

    def tell(what: str) -> None:
        print(f"{time.monotonic() - begin:5.1f} s: {what}")

    with ray_cluster(python_of("ray")) as cluster:
        cluster.start_node(2, {"front": 1, "room": 1}, is_head=True)
        node = cluster.start_node(2, {"room": 1})
        tell("two nodes")
        file = written(tmp_path, cluster, port)
        cluster.penstock("serve", file)
        tell("served")
        async with many_clients() as session:
            answers = [await stream(session, url, ask.inputs, **ask.parameters) for ask in asks]
            load = Load(session, url, asks, answers)
            async with load.running():
                [first] = ready(cluster.status())
                [shard] = shards(first)
                shard.send_signal(signal.SIGKILL)
                await load.go_on()
                tell("a shard was killed, and the launcher has started it again")

                load.number = MANY
                both = ready(await until(cluster, lambda found: len(ready(found)) == 2))
                tell("one group became two")

                await asyncio.to_thread(cluster.call, "ray.kill(ray.get_actor("
                                        f"'group {first} 0', namespace='penstock-demo'))")
                await until(cluster, lambda found: first not in found["groups"] and len(ready(found)) == 2)
                await load.go_on()
                tell("a host was killed, and another group has come")

                both = ready(await asyncio.to_thread(cluster.status))
                pids = {process.pid for group in both for process in shards(group)}
                await asyncio.to_thread(cluster.call, "ray.kill(ray.get_actor('keeper', namespace='penstock-demo'), "
                                        "no_restart=False)")
                assert ready(await until(cluster, lambda found: len(ready(found)) == 2)) == both
                assert {process.pid for group in both for process in shards(group)} == pids
                tell("the keeper was killed, and the next one has adopted the groups")

                moved = await metric(session, url, 'penstock_moved_requests{cause="lost"}')
                node.kill()
                await load.go_on()
                assert await metric(session, url, 'penstock_moved_requests{cause="lost"}') > moved
                await until(cluster, lambda found: ready(found) < both)
                tell("a node was killed")
                await asyncio.to_thread(cluster.start_node, 2, {"room": 1})
                await until(cluster, lambda found: len(ready(found)) == 2)
                tell("a group has come to a new node")

                load.number = FEW
                await until(cluster, lambda found: len(found["groups"]) == 1 and found["num_groups"] == 1)
                await load.go_on()
                tell("two groups became one")

                [gcs] = cluster.processes("gcs_server")
                send(gcs, signal.SIGKILL)
                end = time.monotonic() + SECONDS_WITHOUT_GCS
                while time.monotonic() < end:
                    await load.go_on()
                tell(f"{SECONDS_WITHOUT_GCS} s without the GCS")
            print(f"{load.num_whole} answers, {Counter(answer.finish_reason for answer in answers)}")
