"""Groups and a router on a Ray cluster of two nodes: whatever dies of it, answers are whole, and what they always are.
"""

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
from penstock.client import AsyncClient
from penstock.system.wire_tls import WireTls
from tests.certificates import authority
from tests.clients.environments import python_of
from tests.e2e.asks import Ask, make_asks
from tests.e2e.client import Answer, many_clients, metric, stream, until_running
from tests.e2e.ray_cluster import Node, RayCluster, ray_cluster
from tests.paths import DEMO_MODEL
from tests.processes import is_alive, send

SECONDS_WITHOUT_GCS = 10
"""How long answers must go on after the death of Ray's GCS; three times that with `--every-case`. Without Redis behind
it, nodes leave after 60 seconds."""
FEW, MANY = 3, 12
LONG = 1800
"""The tokens of streams that run while a router's host dies, so that they outlast it."""
LAST_SECONDS = 60.0
"""Within which all streams that run at the end must have ended: whatever befell them, none hangs."""


def described(cluster: RayCluster, port: int, tls: WireTls, least: int = 1) -> dict[str, Any]:
    """A router for the node with a `front`, and one or two groups that run four requests, one on each node."""
    return {
        "name": "demo", "model": str(DEMO_MODEL), "address": cluster.address,
        "tls": {"ca": str(tls.ca), "cert": str(tls.cert), "key": str(tls.key)},
        "router": {"port": port, "cpus": 0.1, "resources": {"front": 1}},
        "group": {"cpus": 0.5, "resources": {"room": 1}, "options": {"kv_memory": "64MiB", "max_batch_size": 4}},
        "scaling": {"min_groups": least, "max_groups": 2, "target_waiting": 4, "target_running": 4,
                    "upscale_delay": 2, "downscale_delay": 4}}


def on_both_nodes(cluster: RayCluster, port: int, tls: WireTls) -> dict[str, Any]:
    """A group with a shard on each node."""
    content = described(cluster, port, tls)
    return {**content, "name": "pair", "scaling": {}, "group": {
        **content["group"], "num_shard": 2, "nodes": 2, "placement": "STRICT_SPREAD"}}


def serve(cluster: RayCluster, content: dict[str, Any]) -> str:
    """Has a cluster serve what is described; returns what the command prints."""
    file = cluster.folder / f"{content['name']}.yaml"
    file.write_text(yaml.safe_dump(content))
    return cluster.penstock("serve", str(file))


class Load:
    """Streams that run all the time, `number` of them, each of which must be what it was undisturbed."""

    def __init__(
        self, session: aiohttp.ClientSession, url: str, asks: Sequence[Ask], answers: Sequence[Answer]
    ) -> None:
        self.number = FEW
        self.num_whole = 0
        self._num_running = 0
        self.is_over = False
        self._session, self._url = session, url
        self._cases = [*zip(asks, answers, strict=True)]

    async def keep(self, place: int) -> None:
        """Sends one request after the other while at least so many are to run."""
        index = place
        while not self.is_over:
            if place >= self.number:
                await asyncio.sleep(0.1)
                continue
            ask, answer = self._cases[index % len(self._cases)]
            self._num_running += 1
            assert await stream(self._session, self._url, ask.inputs, **ask.parameters) == answer
            self._num_running -= 1
            self.num_whole += 1
            index += 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Sends requests until the end of the block, and waits for the last answers. The first fault ends it all."""
        async with asyncio.TaskGroup() as tasks:
            kept = [tasks.create_task(self.keep(place)) for place in range(MANY)]
            yield
            self.is_over = True
            async with asyncio.timeout(LAST_SECONDS):
                await asyncio.gather(*kept)

    async def rest(self) -> None:
        """Sends no more requests until `number` is set again, and waits for the last answers."""
        self.number = 0
        while self._num_running:
            await asyncio.sleep(0.01)

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
    """The shards of a group, or of all whose names begin so."""
    return [process for process in psutil.process_iter(["cmdline"])
            if f'"group": "{group}' in " ".join(process.info["cmdline"] or []) and is_alive(process)]


Tokens = list[tuple[int, float | None]]


async def long_stream(client: AsyncClient, number: int, max_new_tokens: int = LONG) -> Tokens:
    stream = client.generate_stream(
        f"import os  # {number}\n", max_new_tokens=max_new_tokens, ignore_eos=True, do_sample=True, seed=number)
    return [(event.token.id, event.token.logprob) async for event in stream]


async def lose_the_routers_host(cluster: RayCluster, session: aiohttp.ClientSession, url: str) -> list[Tokens]:
    """Kills it under streams of clients that outlive routers, whose answers must be what they are undisturbed, and are
    returned. The old router, which would finish them, is gone when the next one is ready: a group belongs to one
    router."""
    async with AsyncClient(url) as client:
        wanted = await asyncio.gather(*(long_stream(client, number) for number in range(FEW)))
        async with asyncio.timeout(LAST_SECONDS), asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(long_stream(client, number)) for number in range(FEW)]
            await until_running(session, url, FEW)
            before = cluster.routers()
            await asyncio.to_thread(cluster.kill_actor, "router", restarts=True)
            await until(cluster, lambda found: found["router"][0] != "ready")
            await until(cluster, lambda found: found["router"][0] == "ready")
            assert before
            assert not any(map(is_alive, before))
        assert [task.result() for task in running] == wanted
    return wanted


async def lose_a_node(
    cluster: RayCluster, node: Node, session: aiohttp.ClientSession, url: str, wanted: Sequence[Tokens]
) -> None:
    """Kills a node under streams, one of which at least runs in its group: that one moves, and all are what they are
    undisturbed. They are alone, since a shorter one may end between the look and the kill."""
    [there] = [group for group in ready(cluster.status()) if set(shards(group)) & set(node.processes())]
    moves = 'penstock_moved_requests{cause="lost"}'
    moved = await metric(session, url, moves)
    async with AsyncClient(url) as client, asyncio.timeout(LAST_SECONDS), asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(long_stream(client, number, LONG // 4)) for number in range(FEW)]
        while not await metric(session, url, f'penstock_group_batch_size{{group="{there}"}}'):
            await asyncio.sleep(0.01)
        node.kill()
    assert [task.result() for task in running] == [tokens[:LONG // 4] for tokens in wanted]
    assert await metric(session, url, moves) > moved
    await until(cluster, lambda found: there not in ready(found))


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_whatever_dies_answers_go_on(tmp_path: Path, every_case: bool) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    asks = make_asks(random.Random(9), 10, longest=150)
    begin = time.monotonic()

    def tell(what: str) -> None:
        print(f"{time.monotonic() - begin:5.1f} s: {what}")

    with ray_cluster(python_of("ray")) as cluster:
        cluster.start_node(1, {"front": 1, "room": 1}, is_head=True)
        node = cluster.start_node(1, {"room": 1})
        tell("two nodes")
        tls = authority(tmp_path / "ca").issue("all")
        async with many_clients() as session:
            wanted = []
            if every_case:
                serve(cluster, on_both_nodes(cluster, port, tls))
                wanted = [await stream(session, url, ask.inputs, **ask.parameters) for ask in asks]
                left = shards("pair-")
                assert len(left) == 2
                assert cluster.penstock("down", "pair", "--address", cluster.address) == "pair has ended\n"
                assert not [shard for shard in left if is_alive(shard)]
                tell("a group on both nodes has answered, and ended")

            serve(cluster, described(cluster, port, tls))
            answers = [await stream(session, url, ask.inputs, **ask.parameters) for ask in asks]
            assert answers == (wanted or answers), "one node answers as two"
            tell("served by a group on one node")
            long_answers = await lose_the_routers_host(cluster, session, url)
            tell("the router's host was killed under streams, which have gone on at the next one")

            load = Load(session, url, asks, answers)
            async with load.running():
                [first] = ready(cluster.status())
                [shard] = shards(first)
                shard.send_signal(signal.SIGKILL)
                await load.go_on()
                tell("a shard was killed, and the launcher has started it again")

                load.number = MANY
                await until(cluster, lambda found: found["num_groups"] == 2)
                tell("two groups are wanted")
                load.number = FEW  # and their number stays: what follows is not about load, and takes processors itself
                await asyncio.to_thread(serve, cluster, described(cluster, port, tls, least=2))
                tell("one group became two, which are the least now")

                await asyncio.to_thread(cluster.kill_actor, f"group {first} 0", restarts=False)
                await until(cluster, lambda found: first not in found["groups"] and len(ready(found)) == 2)
                await load.go_on()
                tell("a host was killed, and another group has come")

                both = ready(await asyncio.to_thread(cluster.status))
                pids = {process.pid for group in both for process in shards(group)}
                keeper = cluster.keeper()
                await asyncio.to_thread(cluster.kill_actor, "keeper", restarts=True)
                while is_alive(keeper):
                    await asyncio.sleep(0.01)
                assert ready(await until(cluster, lambda found: len(ready(found)) == 2)) == both
                assert {process.pid for group in both for process in shards(group)} == pids
                assert cluster.keeper() != keeper
                tell("the keeper was killed, and the next one has adopted the groups")

                await load.rest()
                await lose_a_node(cluster, node, session, url, long_answers)
                load.number = FEW
                await load.go_on()
                tell("a node was killed")
                await asyncio.to_thread(cluster.start_node, 1, {"room": 1})
                await until(cluster, lambda found: len(ready(found)) == 2)
                tell("a group has come to a new node")

                await asyncio.to_thread(serve, cluster, described(cluster, port, tls))
                await until(cluster, lambda found: len(found["groups"]) == 1 and found["num_groups"] == 1)
                await load.go_on()
                tell("two groups became one")

                [gcs] = cluster.processes("gcs_server")
                send(gcs, signal.SIGKILL)
                seconds = SECONDS_WITHOUT_GCS * (3 if every_case else 1)
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    await load.go_on()
                tell(f"{seconds} s without the GCS")
            print(f"{load.num_whole} answers, {Counter(answer.finish_reason for answer in answers)}")
