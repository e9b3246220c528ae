"""Groups that routers reach over TCP: certificates, drains, several machines, and wires that are cut."""

import asyncio
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import psutil
import pytest

from penstock.bench.programs.children import free_port
from penstock.router.engine.engine import Engine
from penstock.router.fleet.client import ShardClient
from penstock.router.fleet.errors import FleetError
from penstock.router.fleet.fleet import GrpcFleet
from penstock.router.groups.groups import Groups
from penstock.router.metrics.metrics import Metrics
from penstock.system.wire_tls import WireTls
from tests.certificates import Authority, authority, flags
from tests.e2e.groups import START_SECONDS, Token, driving, generate, group
from tests.fakes import LIMITS
from tests.machines import machines
from tests.processes import is_alive

pytestmark = pytest.mark.slow
NUMBER = 250
NOTICED_SECONDS = 7.0
"""Within which the engine knows of a cut wire: 4 s, and what a busy machine may add."""


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="module")
def tls(ca: Authority) -> WireTls:
    return ca.issue("router")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[Token]:
    """What one shard gives that is reached in the clear."""
    async def answer() -> list[Token]:
        target = f"127.0.0.1:{free_port()}"
        with group(tmp_path_factory.mktemp("group"), "--listen", target):
            async with driving([target], None) as engine:
                return await generate(engine, NUMBER)

    tokens = asyncio.run(answer())
    assert len(tokens) == NUMBER
    return tokens


async def test_a_group_whose_launcher_was_killed_drains_and_ends(tmp_path: Path) -> None:
    """What its shards are told of a router's stream would otherwise keep them, and their port, for 90 s."""
    target = f"127.0.0.1:{free_port()}"
    with group(tmp_path / "group", "--listen", target) as running:
        async with driving([target], None) as engine:
            await generate(engine, 5)
            shards = [*running.shards().values()]
            states = GrpcFleet([target]).draining()
            assert await anext(states) is False
            running.process.kill()
            assert await anext(states) is True
            await asyncio.to_thread(psutil.wait_procs, shards, 10)
            assert not [shard for shard in shards if is_alive(shard)]
            await states.aclose()



async def test_a_group_lets_in_whom_its_ca_has_signed_and_drains_before_it_ends(
    tmp_path: Path, ca: Authority, tls: WireTls, expected: list[Token]
) -> None:
    port = free_port()
    target = f"127.0.0.1:{port}"
    served = copied(ca.issue("shard"), tmp_path / "served")
    with group(tmp_path / "group", "--listen", target, "--group-name", "blue", *flags(served)) as running:
        async with driving([target], tls) as engine:
            assert engine.facts.group == "blue"
            assert await generate(engine, NUMBER) == expected
            stranger = authority(tmp_path / "stranger").issue("router")
            refused = [WireTls(tls.ca, stranger.cert, stranger.key), WireTls(stranger.ca, tls.cert, tls.key),
                       WireTls(tls.ca, tls.cert, tls.key, "another-name"), None]
            for end in refused:
                await refuses(ShardClient(target, end))
            await refuses_a_client_without_certificate(target, tls)
            copied(stranger, tmp_path / "served")  # certificates are renewed, and those of the old CA serve no more
            client = ShardClient(target, stranger)
            assert (await client.health(5)).steps_begun > 1
            await client.close()
            await refuses(ShardClient(target, tls))
            copied(ca.issue("shard"), tmp_path / "served")
            states = GrpcFleet([target], tls).draining()
            assert await anext(states) is False
            running.process.terminate()
            assert await anext(states) is True
            assert await asyncio.to_thread(running.process.wait, 10) == 0


def copied(tls: WireTls, folder: Path) -> WireTls:
    """Copies the files of one end, over others if there are some."""
    folder.mkdir(exist_ok=True)
    for file, name in ((tls.ca, "ca"), (tls.cert, "cert"), (tls.key, "key")):
        shutil.copy(file, folder / name)
    return WireTls(folder / "ca", folder / "cert", folder / "key")


async def refuses(client: ShardClient) -> None:
    with pytest.raises(FleetError, match=r"UNAVAILABLE|DEADLINE_EXCEEDED"):
        await client.health(0.7)
    await client.close()


async def refuses_a_client_without_certificate(target: str, tls: WireTls) -> None:
    credentials = grpc.ssl_channel_credentials(tls.ca.read_bytes())
    async with grpc.aio.secure_channel(target, credentials,
                                       options=[("grpc.ssl_target_name_override", tls.name)]) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await channel.unary_unary("/penstock.shard.v2.Shard/Describe")(b"", timeout=2)
    assert error.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_two_machines_give_the_bits_of_one_and_go_on_after_whatever_is_lost(
    tmp_path: Path, ca: Authority, tls: WireTls, expected: list[Token]
) -> None:
    with machines(2) as hosts:
        first, second = (host.address for host in hosts)
        common = ["--num-shard", "2", "--nnodes", "2", "--master-addr", first, "--master-port", "4100",
                  "--graceful-termination-timeout", "5", *flags(ca.issue("shard"))]
        with (group(tmp_path / "b", "--listen", f"{second}:4000", "--node-rank", "1", *common,
                    on=hosts[1].command([])) as there,
              group(tmp_path / "a", "--listen", f"{first}:4000", "--node-rank", "0", *common,
                    on=hosts[0].command([]))):
            async with driving([f"{first}:4000", f"{second}:4000"], tls) as engine:
                assert (engine.facts.group, engine.facts.world_size) == (f"{first}:4100", 2)
                assert await generate(engine, NUMBER) == expected
                [shard] = there.shards().values()
                await survives(engine, expected, shard.kill, lambda: None, 0)
                await survives(engine, expected, hosts[1].cut, hosts[1].mend, 5)
                await survives(engine, expected, hosts[0].cut, hosts[0].mend, 0)
            spare = f"127.0.0.1:{free_port()}"
            with group(tmp_path / "c", "--listen", spare, *flags(ca.issue("shard"))):
                await goes_on_elsewhere(GrpcFleet([f"{first}:4000", f"{second}:4000"], tls), GrpcFleet([spare], tls),
                                        expected, hosts[1].cut)
            hosts[1].mend()


async def goes_on_elsewhere(
    fleet: GrpcFleet, spare: GrpcFleet, expected: list[Token], disturb: Callable[[], None]
) -> None:
    """Sees that an answer of a group whose wire is cut for good goes on in another group, as undisturbed."""
    metrics = Metrics(LIMITS)
    groups = Groups(LIMITS, metrics)
    for name, each in (("cut", fleet), ("spare", spare)):
        facts = await asyncio.wait_for(each.describe(), START_SECONDS)
        groups.add(Engine(each, facts, LIMITS, metrics, name=name, is_one_of_many=True))
    running = asyncio.create_task(groups.run())
    try:
        while not all(member.engine.has_group for member in groups.members):
            await asyncio.sleep(0.02)
        begun = asyncio.Event()
        answer = asyncio.create_task(generate(groups, NUMBER, begun))
        await begun.wait()
        assert [member.engine.num_requests for member in groups.members] == [1, 0]
        disturb()
        since = time.monotonic()
        assert await asyncio.wait_for(answer, 180) == expected
        print(f"it went on elsewhere, and was done {time.monotonic() - since:.2f} s after the cut")
        moved = re.findall(rb'penstock_moved_requests{cause="(?:lost|stuck)"} 1\.0', metrics.exposition())
        assert len(moved) == 1, "the step that does not come back is noticed, or the wire"
    finally:
        running.cancel()
        await asyncio.wait([running])
        await fleet.close()
        await spare.close()


async def survives(
    engine: Engine, expected: list[Token], disturb: Callable[[], None], mend: Callable[[], None], seconds: float
) -> None:
    """Sees that an answer is as undisturbed, though the group is lost in its midst, and for how long that takes."""
    begun = asyncio.Event()
    answer = asyncio.create_task(generate(engine, NUMBER, begun))
    await begun.wait()
    disturb()
    since = time.monotonic()
    while engine.has_group:
        assert not answer.done()
        await asyncio.sleep(0.02)
    noticed = time.monotonic() - since
    await asyncio.sleep(max(0, seconds - noticed))
    mend()
    mended = time.monotonic()
    assert await asyncio.wait_for(answer, 90) == expected
    print(f"noticed after {noticed:.2f} s, done {time.monotonic() - mended:.2f} s after the end of the disturbance")
    assert noticed < NOTICED_SECONDS
