"""The gRPC fleet against shards that answer over real sockets."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from penstock.contract import wire
from penstock.contract.block_copy import BlockCopy
from penstock.contract.initial_state import InitialState
from penstock.contract.output import Output
from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.contract.sampling import Sampling
from penstock.contract.shard_facts import ShardFacts
from penstock.contract.stream_limits import StreamLimits
from penstock.protos import services, shard_pb2
from penstock.router.fleet import client
from penstock.router.fleet.client import ShardClient
from penstock.router.fleet.errors import AdapterRefusedError, FleetError, OtherFacts
from penstock.router.fleet.fleet import GrpcFleet, agree
from penstock.shard.serving.checks import check_row
from penstock.shard.serving.draining import Draining
from penstock.system.wire_tls import WireTls
from tests.adapter_inputs import adapter_value
from tests.certificates import authority
from tests.fakes import FACTS
from tests.other_user import OTHER_USER, only_root, other_user

LIMITS = StreamLimits(max_slots=4, max_step_tokens=64, max_blocks_per_slot=8)


class EchoShard:
    """Answers every sampled row with the slot plus 100, and keeps the orders."""

    def __init__(self, rank: int, **facts: Any) -> None:
        self.orders: list[shard_pb2.Order] = []
        self.step_offset = 0
        self.adapters: dict[int, tuple[str, str]] = {}
        self.refusals: dict[str, tuple[grpc.StatusCode, str]] = {}
        self.draining = Draining(False)
        self.facts = shard_pb2.Facts(**{
            "model_id": "m", "dtype": "float32", "kv_dtype": "float32", "block_size": 16, "num_blocks": 50 + rank,
            "vocab_size": 99, "eos_token_ids": [2], "context_length": 512, "rank": rank, "world_size": 2,
            "answers": rank == 0, "numerics": "n", "kv_groups": 1, "weights_digest": "d", "settings_digest": "s",
            "step_tokens": 90 - rank, "memory_id": f"memory {rank}", **facts})

    async def Describe(self, request: shard_pb2.DescribeRequest, context: Any) -> shard_pb2.Facts:
        return self.facts

    async def LoadAdapter(self, request: shard_pb2.LoadAdapterRequest, context: Any) -> shard_pb2.LoadAdapterReply:
        if request.path in self.refusals:
            code, sentence = self.refusals[request.path]
            await context.abort(code, sentence)
        self.adapters[request.adapter] = (request.path, request.digest)
        return shard_pb2.LoadAdapterReply(num_bytes=100 + self.facts.rank)

    async def UnloadAdapter(self, request: shard_pb2.UnloadAdapterRequest, context: Any) -> Any:
        self.adapters.pop(request.adapter, None)
        return shard_pb2.UnloadAdapterReply()

    async def Follow(self, request: shard_pb2.FollowRequest, context: Any) -> AsyncIterator[shard_pb2.GroupState]:
        async for is_draining in self.draining.follow():
            yield shard_pb2.GroupState(is_draining=is_draining)

    async def Drain(self, request: shard_pb2.DrainRequest, context: Any) -> shard_pb2.DrainReply:
        self.draining.set(request.is_draining)
        return shard_pb2.DrainReply()

    async def Execute(self, orders: AsyncIterator[shard_pb2.Order], context: Any) -> AsyncIterator[Any]:
        async for order in orders:
            self.orders.append(order)
            if order.HasField("plan"):
                rows = [shard_pb2.RowResult(slot=row.slot, token_ids=[row.slot + 100], logprobs=[-0.1])
                        for row in order.plan.rows if row.output == shard_pb2.SAMPLE and self.facts.answers]
                yield shard_pb2.StepResult(step_id=order.plan.step_id + self.step_offset, rows=rows, forward_ns=5000)


@asynccontextmanager
async def running(tmp_path: Path, *shards: EchoShard) -> AsyncIterator[tuple[GrpcFleet, list[grpc.aio.Server]]]:
    targets = [f"unix:{tmp_path}/{index}.sock" for index in range(len(shards))]
    servers = [grpc.aio.server() for _ in shards]
    for server, shard, target in zip(servers, shards, targets, strict=True):
        services.serve(server, shard_pb2, shard)
        server.add_insecure_port(target)
        await server.start()
    fleet = GrpcFleet(targets)
    try:
        yield fleet, servers
    finally:
        await fleet.close()
        await asyncio.gather(*(server.stop(None) for server in servers))


async def test_facts_are_the_minimum_over_the_group(tmp_path: Path) -> None:
    async with running(tmp_path, EchoShard(0), EchoShard(1)) as (fleet, _):
        facts = await fleet.describe()
    assert (facts.num_blocks, facts.step_tokens, facts.capacity) == (50, 89, 800)
    assert facts.eos_token_ids == frozenset({2})


async def test_certificates_that_are_renewed_reach_one_that_waits_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "WAIT_SECONDS", 0.3)
    before, now = (authority(tmp_path / each).issue("a") for each in ("before", "now"))
    files = WireTls(tmp_path / "ca.pem", tmp_path / "cert.pem", tmp_path / "key.pem")
    _copy(before, files)
    ca, cert, key = now.read()
    server = grpc.aio.server()
    services.serve(server, shard_pb2, EchoShard(0, world_size=1))
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, cert)], ca, True))
    await server.start()
    fleet = GrpcFleet([f"127.0.0.1:{port}"], files)
    draining = fleet.draining()
    try:
        waiting = asyncio.gather(fleet.describe(), anext(draining))
        await asyncio.sleep(0.5)
        files.key.unlink()  # there is none for a moment
        await asyncio.sleep(0.5)
        assert not waiting.done()
        _copy(now, files)
        facts, is_draining = await asyncio.wait_for(waiting, 20)
        assert (facts.num_blocks, is_draining) == (50, False)
    finally:
        await draining.aclose()
        await fleet.close()
        await server.stop(None)


def _copy(source: WireTls, target: WireTls) -> None:
    for path, content in zip((target.ca, target.cert, target.key), source.read(), strict=True):
        path.write_bytes(content)


async def test_a_group_has_a_name_and_its_shards_have_places(tmp_path_factory: pytest.TempPathFactory) -> None:
    one, other = map(tmp_path_factory.mktemp, "gh")  # for gRPC keeps connections by their path for a while
    async with running(one, *(EchoShard(rank, group="g", shards_here=2) for rank in (0, 1))) as (fleet, _):
        assert (await fleet.describe()).group == "g"
        assert (await fleet._clients[1].describe()).shards_here == 2
    async with running(other, EchoShard(0, group="g"), EchoShard(1, group="h")) as (fleet, _):
        with pytest.raises(FleetError, match="shards differ in group: g and h"):
            await fleet.describe()


@pytest.mark.parametrize("world_size", [1, 3])
async def test_a_group_that_has_another_number_of_shards_is_waited_for_no_more(tmp_path: Path, world_size: int) -> None:
    async with running(tmp_path, EchoShard(0, world_size=world_size), EchoShard(1)) as (fleet, servers):
        await servers[1].stop(None)
        for use in (fleet.describe, partial(fleet.open, LIMITS)):
            with pytest.raises(OtherFacts, match=f"it has {world_size} shards, not 2"):
                await use()


async def test_a_drain_is_told_at_once_and_when_it_changes_and_outlives_a_new_start(tmp_path: Path) -> None:
    shards = EchoShard(0), EchoShard(1)
    async with running(tmp_path, *shards) as (fleet, servers):
        client = ShardClient(fleet._targets[0])
        states = fleet.draining()
        assert await anext(states) is False
        await client.drain(True)
        assert await anext(states) is True
        await fleet.open(LIMITS)
        await fleet.open(LIMITS)
        await client.drain(True)
        await client.drain(False)
        assert await anext(states) is False
        await servers[0].stop(None)
        with pytest.raises(FleetError):
            await anext(states)
        await client.close()


async def test_every_shard_gets_the_plan_and_the_answering_one_answers(tmp_path: Path) -> None:
    shards = [EchoShard(0, answers=False), EchoShard(1, answers=True)]
    sampling = Sampling(do_sample=True, seed=2**64 - 1, temperature=0.5, top_k=7, repetition_penalty=2.0)
    plan = Plan(0, (
        Row(slot=2, start=0, token_ids=(5, 6), new_blocks=(0,), initial_state=InitialState(sampling, 2, (5, 6))),
        Row(slot=3, start=16, from_last_sample=True, output=Output.NONE)),
        cleared_slots=(1,), block_copies=(BlockCopy(4, 9),))
    async with running(tmp_path, *shards) as (fleet, _):
        await fleet.describe()
        await fleet.open(LIMITS)
        await fleet.submit(plan)
        result = await fleet.next_result()
    assert (result.step_id, result.forward_time) == (0, 5e-6)
    assert [(row.slot, row.token_ids) for row in result.rows] == [(2, (102,))]
    assert shards[0].orders == shards[1].orders
    opened, planned = shards[0].orders
    limits = opened.stream_limits
    assert (limits.max_slots, limits.max_step_tokens, limits.max_blocks_per_slot) == (4, 64, 8)
    assert wire.decode_plan(planned.plan, 0, check_row).block_copies == plan.block_copies
    first = planned.plan.rows[0].initial_state
    assert (first.sampling.seed, first.sampling.top_k, first.prompt_length) == (2**64 - 1, 7, 2)
    assert planned.plan.rows[0].token_ids == bytes([5, 0, 0, 0, 6, 0, 0, 0])


async def test_adapters_are_loaded_on_every_shard_and_named_by_their_number(tmp_path: Path) -> None:
    shards = [EchoShard(0), EchoShard(1)]
    async with running(tmp_path, *shards) as (fleet, _):
        await fleet.open(LIMITS)
        assert await fleet.load_adapter(2**32 - 1, "/a", "abc") == 101
        assert [shard.adapters for shard in shards] == [{2**32 - 1: ("/a", "abc")}] * 2
        state = InitialState(Sampling(), 1, side_inputs=adapter_value(2**32 - 1))
        await fleet.submit(Plan(0, (Row(slot=0, start=0, token_ids=(1,), initial_state=state),)))
        await fleet.next_result()
        await fleet.unload_adapter(2**32 - 1)
        await fleet.unload_adapter(7)
        assert [shard.adapters for shard in shards] == [{}, {}]
    assert [shard.orders[-1].plan.rows[0].initial_state.side_inputs for shard in shards] == [state.side_inputs] * 2


async def test_an_adapter_that_one_shard_refuses_is_left_on_none(tmp_path: Path) -> None:
    shards = [EchoShard(0), EchoShard(1)]
    shards[1].refusals["/a"] = grpc.StatusCode.INVALID_ARGUMENT, "its rank is 7"
    async with running(tmp_path, *shards) as (fleet, _):
        await fleet.open(LIMITS)
        with pytest.raises(AdapterRefusedError, match=r"^its rank is 7$"):
            await fleet.load_adapter(1, "/a", "abc")
        assert [shard.adapters for shard in shards] == [{}, {}]
        shards[0].refusals["/a"] = grpc.StatusCode.INTERNAL, "a fault"
        with pytest.raises(FleetError, match="INTERNAL: a fault"):
            await fleet.load_adapter(1, "/a", "abc")


@only_root
@pytest.mark.parametrize(("folder", "complaint"), [
    ("", f"user {OTHER_USER} listens there, not user 0, as whom this router runs"),
    ("./", "the connection is lost, or is to a socket of another name")])
async def test_a_stranger_who_listens_gets_no_orders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    shard, server = EchoShard(0, world_size=1), grpc.aio.server()
    services.serve(server, shard_pb2, shard)
    with other_user(tmp_path):
        server.add_insecure_port("unix:0.sock")
    await server.start()
    fleet = GrpcFleet([f"unix:{folder}0.sock"])
    for use in (fleet.describe, partial(fleet.open, LIMITS)):
        with pytest.raises(FleetError, match=complaint):
            await use()
    assert not shard.orders
    await fleet.close()
    await server.stop(None)


@pytest.mark.parametrize("num_shards", [1, 2, 4])
async def test_a_plan_is_encoded_once_for_all_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_shards: int
) -> None:
    encoded: list[shard_pb2.Order] = []
    encode = shard_pb2.Order.SerializeToString

    def count(order: shard_pb2.Order) -> bytes:
        encoded.append(order)
        return encode(order)

    monkeypatch.setattr(shard_pb2.Order, "SerializeToString", count)
    shards = [EchoShard(rank, world_size=num_shards) for rank in range(num_shards)]
    async with running(tmp_path, *shards) as (fleet, _):
        await fleet.open(LIMITS)
        encoded.clear()
        for step_id in range(3):
            await fleet.submit(Plan(step_id, (Row(slot=0, start=0, token_ids=(1,)),)))
            assert (await fleet.next_result()).step_id == step_id
    assert [order.plan.step_id for order in encoded] == [0, 1, 2]
    assert all(shard.orders[1:] == encoded for shard in shards)


async def test_masks_go_to_the_shard_that_samples(tmp_path: Path) -> None:
    shards = [EchoShard(0, answers=False), EchoShard(1, answers=True)]
    row = Row(slot=2, start=0, token_ids=(5, 6), new_blocks=(0,), late_mask=True)
    async with running(tmp_path, *shards) as (fleet, _):
        await fleet.describe()
        await fleet.open(LIMITS)
        await fleet.submit(Plan(0, (row,), masked=((2, 7),)))
        await fleet.submit_masks(0, {2: b"\x05\0\0\0"})
        await fleet.submit(Plan(1, (row._replace(slot=3),), masked=((3, 8),)))
        await fleet.submit_masks(1, {})
        assert [(await fleet.next_result()).step_id for _ in range(2)] == [0, 1]
        while len(shards[1].orders) < 5:
            await asyncio.sleep(0.001)
    assert [order.WhichOneof("kind") for order in shards[0].orders] == ["stream_limits", "plan", "plan"]
    assert [order.WhichOneof("kind") for order in shards[1].orders] == [
        "stream_limits", "plan", "masks", "plan", "masks"]
    assert shards[1].orders[1].plan.rows[0].late_mask
    masks = shards[1].orders[2].masks
    assert (masks.step_id, [(mask.slot, mask.bits) for mask in masks.masks]) == (0, [(2, b"\x05\0\0\0")])


async def test_opened_again_it_counts_on(tmp_path: Path) -> None:
    shard = EchoShard(0, world_size=1)
    async with running(tmp_path, shard) as (fleet, _):
        for _ in range(2):
            assert (await fleet.open(LIMITS)).num_blocks == 50
            await fleet.submit(Plan(0, (Row(slot=0, start=0, token_ids=(1,)),)))
            assert (await fleet.next_result()).rows[0].token_ids == (100,)
    first, second = (order.stream_limits.epoch for order in shard.orders if order.HasField("stream_limits"))
    assert 0 < first < second


@pytest.mark.parametrize(("rank", "message"), [
    (0, "ran step 4, the group is at 7"), (1, "ran step 7, the group is at 4")])
async def test_shards_out_of_step_are_an_error(tmp_path: Path, rank: int, message: str) -> None:
    """The one that answers is ahead, so that the other is behind, or the other way round."""
    shards = [EchoShard(0), EchoShard(1)]
    shards[rank].step_offset = 3
    async with running(tmp_path, *shards) as (fleet, _):
        await fleet.describe()
        await fleet.open(LIMITS)
        await fleet.submit(Plan(4, (Row(slot=0, start=0, token_ids=(1,)),)))
        with pytest.raises(FleetError, match=message):
            await fleet.next_result()


async def test_a_dead_shard_is_an_error_that_names_it(tmp_path: Path) -> None:
    async with running(tmp_path, EchoShard(0), EchoShard(1)) as (fleet, servers):
        await fleet.describe()
        await fleet.open(LIMITS)
        waiting = asyncio.create_task(fleet.next_result())
        await asyncio.sleep(0)
        await servers[0].stop(None)
        with pytest.raises(FleetError, match=r"0\.sock"):
            await waiting


async def test_a_shard_that_died_while_nothing_ran_is_an_error_too(tmp_path: Path) -> None:
    """The stream is over before the write: gRPC has another exception for that than for one that breaks it off."""
    async with running(tmp_path, EchoShard(0, world_size=1)) as (fleet, servers):
        await fleet.open(LIMITS)
        await servers[0].stop(None)
        while not fleet._clients[0]._stream.done():
            await asyncio.sleep(0.001)
        with pytest.raises(FleetError, match=r"0\.sock ended the stream"):
            await fleet.submit(Plan(0, (Row(slot=0, start=0, token_ids=(1,)),)))


async def test_the_end_of_a_group_at_rest_is_noticed(tmp_path: Path) -> None:
    """To wait for it and to stop waiting changes nothing else."""
    async with running(tmp_path, EchoShard(0), EchoShard(1)) as (fleet, servers):
        await fleet.open(LIMITS)
        for _ in range(3):
            waiting = asyncio.create_task(fleet.end())
            await asyncio.sleep(0.01)
            waiting.cancel()
        await fleet.submit(Plan(0, (Row(slot=0, start=0, token_ids=(1,), output=Output.SAMPLE),)))
        assert [row.slot for row in (await fleet.next_result()).rows] == [0]
        waiting = asyncio.create_task(fleet.end())
        await asyncio.sleep(0.01)
        assert not waiting.done()
        await servers[1].stop(None)
        with pytest.raises(FleetError, match=r"1\.sock ended the stream"):
            await waiting


@pytest.mark.slow
async def test_waits_that_are_cancelled_leave_nothing(tmp_path: Path) -> None:
    """The engine begins one whenever it has nothing to do, and a stream may last for months."""
    async with running(tmp_path, EchoShard(0), EchoShard(1)) as (fleet, _):
        await fleet.open(LIMITS)
        num_futures = []
        for _ in range(2):
            for _ in range(200):
                waiting = asyncio.create_task(fleet.end())
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                waiting.cancel()
                await asyncio.wait([waiting])
            gc.collect()
            num_futures.append(sum(issubclass(type(each), asyncio.Future) for each in gc.get_objects()))
        assert num_futures[1] < num_futures[0] + 50


async def test_a_group_has_the_memories_of_its_shards(tmp_path: Path) -> None:
    async with running(tmp_path, EchoShard(0), EchoShard(1)) as (fleet, _):
        assert (await fleet.describe()).memory_id == "memory 0+memory 1"


def shard_facts(rank: int, **changes: Any) -> ShardFacts:
    return ShardFacts(rank=rank, answers=rank == 0, facts=replace(FACTS, world_size=2, **changes))


@pytest.mark.parametrize(("shards", "message"), [
    ([shard_facts(0)], r"the ranks \[0\], a group of 2 has 0 to 1"),
    ([shard_facts(0), shard_facts(0)], r"the ranks \[0, 0\]"),
    ([shard_facts(0), replace(shard_facts(1), answers=True)], "2 shards answer, exactly one must"),
    ([shard_facts(0), shard_facts(1, weights_digest="x")], "differ in weights_digest: 0 and x"),
    ([shard_facts(0), shard_facts(1, numerics="x")], "differ in numerics: scripted and x"),
])
def test_shards_that_are_no_group(shards: list[ShardFacts], message: str) -> None:
    with pytest.raises(FleetError, match=message):
        agree(shards)
