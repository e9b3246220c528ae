"""One shard process over real gRPC: its orders and its streams."""

import asyncio
import os
import signal
import stat
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import grpc
import pytest

from penstock.contract.plan import Plan
from penstock.contract.row_result import RowResult
from penstock.contract.sampling import Sampling
from penstock.contract.step_result import StepResult
from penstock.kernels import dispatch
from penstock.protos import services, shard_pb2
from penstock.shard.communication.distributed import Group
from penstock.shard.config import ShardConfig
from penstock.shard.execution.executor import Executor
from penstock.shard.serving.server import ShardServicer, Stream, serve
from penstock.shard.serving.worker import Order
from tests.other_user import OTHER_USER, only_root, other_user
from tests.shard.processes import (
    LIMITS,
    SECONDS,
    Client,
    ClientStream,
    Shard,
    clients,
    encode_masks,
    encode_plan,
    encode_stream_limits,
    new_epoch,
    rows_of,
    run_over_wire,
    running,
    write_program,
)
from tests.shard.ranks import make_config, run_program
from tests.shard.step_programs import Program, Request, alone, batched, initial, make_row, prompt_step
from tests.tiny_models import DEMO_MODEL

MODEL: dict[str, Any] = {"model": str(DEMO_MODEL), "dtype": "float32", "kv_memory": 64 << 20, "watermark_gamma": 0.3,
                         "watermark_delta": 4.5}
REQUESTS = [
    Request([5, 6, 7, 8], 6),
    Request(list(range(100, 140)), 5, Sampling(do_sample=True, seed=2**64 - 3, top_k=40, repetition_penalty=1.3)),
    Request([9], 7, Sampling(do_sample=True, seed=4, temperature=1.2, top_p=0.9)),
    Request(list(range(50, 60)), 5, Sampling(do_sample=True, seed=8, branch=1, min_p=0.01), mask_seed=5),
    Request([7, 8], 4, Sampling(watermark=True, raw_logprobs=True), mask_seed=6, wants_prompt_logprobs=True),
]


@pytest.fixture(scope="module")
def program() -> Program:
    return batched(REQUESTS, seed=1)


@pytest.fixture(scope="module")
def expected(program: Program) -> list[list[tuple[int, float]]]:
    """What the same orders give in this process."""
    config = replace(make_config(DEMO_MODEL, "float32"), watermark_gamma=0.3, watermark_delta=4.5)
    outputs = run_program(Executor(config, Group()), program)
    return [[(sampled.token_id, sampled.logprob) for sampled in tokens] for tokens in outputs]


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shard]:
    with running(tmp_path_factory.mktemp("shard"), **MODEL) as shards:
        yield shards[0]


@pytest.fixture
def client(shard: Shard) -> Iterator[Client]:
    with clients([shard]) as (client,):
        yield client


def test_describe(shard: Shard, client: Client) -> None:
    facts = client.stub.Describe(shard_pb2.DescribeRequest())
    assert stat.S_IMODE(shard.socket.stat().st_mode) == 0o600
    assert facts.model_id == str(DEMO_MODEL)
    assert (facts.dtype, facts.kv_dtype, facts.numerics) == (
        "float32", "float32", f"{dispatch.path()}/float32/kv-float32/contract-1")
    assert (facts.block_size, facts.num_blocks) == (16, (64 << 20) // (8 * 16 * 4 * 32 * 2 * 4))
    assert (facts.vocab_size, facts.context_length, list(facts.eos_token_ids)) == (8192, 2048, [2])
    assert (facts.rank, facts.world_size, facts.answers, facts.kv_groups) == (0, 1, True, 1)
    assert len(facts.weights_digest) == 64
    assert 16 <= facts.step_tokens <= 4096
    assert facts.step_tokens % 16 == 0


def test_the_wire_changes_nothing(
    client: Client, program: Program, expected: list[list[tuple[int, float]]]
) -> None:
    assert run_over_wire([client.open()], program) == expected


def test_results_still_come_after_the_last_order(
    client: Client, program: Program, expected: list[list[tuple[int, float]]]
) -> None:
    stream = client.open()
    write_program([stream], program)
    stream.done_writing()
    assert [stream.read().step_id for _ in program.steps] == list(range(len(program.steps)))
    with pytest.raises(StopIteration):
        stream.read()


@only_root
@pytest.mark.parametrize("method", ["Describe", "Health"])
def test_other_users_are_cut_off(shard: Shard, client: Client, method: str) -> None:
    client.stub.Health(shard_pb2.HealthRequest())
    shard.socket.chmod(0o777)
    with other_user(shard.socket.parent), grpc.insecure_channel(f"unix:{shard.socket.name}") as channel:
        call = channel.unary_unary(f"/{shard_pb2.DESCRIPTOR.services_by_name['Shard'].full_name}/{method}")
        with pytest.raises(grpc.RpcError) as error:
            call(b"", wait_for_ready=True, timeout=SECONDS)
    shard.socket.chmod(0o600)
    assert error.value.code() is grpc.StatusCode.UNAVAILABLE
    assert client.stub.Health(shard_pb2.HealthRequest())  # the shard answers it once it has told of the other user
    assert f"user {OTHER_USER}, who is neither this shard's nor root, is cut off from {shard.socket}" \
        in shard.log.read_text()


@only_root
def test_another_users_stream_takes_no_place(shard: Shard, client: Client) -> None:
    stream = client.open()
    stream.write(encode_plan(prompt_step(0)))
    assert stream.read().step_id == 0
    shard.socket.chmod(0o777)
    with other_user(shard.socket.parent), grpc.insecure_channel(f"unix:{shard.socket.name}") as channel:
        orders = iter([encode_stream_limits(new_epoch())])
        with pytest.raises(grpc.RpcError) as error:
            next(services.stub(channel, shard_pb2).Execute(orders, wait_for_ready=True, timeout=SECONDS))
    shard.socket.chmod(0o600)
    assert error.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.PERMISSION_DENIED)
    stream.write(encode_plan(prompt_step(1)))
    assert stream.read().step_id == 1


def test_health_answers_while_a_step_runs(client: Client) -> None:
    before = client.stub.Health(shard_pb2.HealthRequest())
    stream = client.open()
    stream.write(encode_plan(prompt_step(0, length=1024)))
    busy = []
    done = threading.Thread(target=stream.read)
    done.start()
    while done.is_alive():
        health = client.stub.Health(shard_pb2.HealthRequest(), timeout=SECONDS)
        if health.steps_begun > health.steps_ended:
            busy.append(health.began_seconds_ago)
    done.join()
    assert len(busy) > 3
    assert busy == sorted(busy)
    after = client.stub.Health(shard_pb2.HealthRequest())
    assert (after.steps_begun, after.steps_ended) == (before.steps_begun + 1, before.steps_ended + 1)
    assert after.began_seconds_ago > after.ended_seconds_ago > 0


def refusal(client: Client, *orders: shard_pb2.Order) -> tuple[grpc.StatusCode, str]:
    stream = client.open()
    stream.cancel()
    with pytest.raises(grpc.RpcError) as refused:
        list(client.stub.Execute(iter(orders), timeout=SECONDS))
    return refused.value.code(), refused.value.details()


@pytest.mark.parametrize(("orders", "message"), [
    ([encode_plan(prompt_step(0))], "the first order of a stream must be stream_limits"),
    ([shard_pb2.Order()], "the first order of a stream must be stream_limits"),
    ([encode_masks(0, {})], "the first order of a stream must be stream_limits"),
    ([shard_pb2.Order(stream_limits=shard_pb2.StreamLimits(max_slots=1, max_step_tokens=1))],
     "stream_limits.max_blocks_per_slot is 0"),
])
def test_a_stream_must_begin_with_stream_limits(client: Client, orders: list[shard_pb2.Order], message: str) -> None:
    code, details = refusal(client, *orders)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert message in details


@pytest.mark.parametrize(("order", "message"), [
    (encode_plan(prompt_step(2)), "plan.step_id is 2, the next one of this stream is 1"),
    (encode_plan(prompt_step(0)), "plan.step_id is 0, the next one of this stream is 1"),
    (encode_plan(Plan(1, ())), "plan 1 has no rows"),
    (shard_pb2.Order(), "must be a plan or masks"),
    (encode_stream_limits(alone(REQUESTS).limits), "must be a plan or masks"),
    (encode_masks(0, {}), "masks.step_id is 0, the steps that wait for masks are []"),
])
def test_a_bad_order_ends_its_stream_alone(
    shard: Shard, client: Client, program: Program, expected: list[list[tuple[int, float]]],
    order: shard_pb2.Order, message: str,
) -> None:
    stream = client.open()
    stream.write(encode_plan(prompt_step(0)), order)
    with pytest.raises(grpc.RpcError) as refused:
        list(iter(stream.read, None))
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert message in refused.value.details()
    assert run_over_wire([client.open()], program) == expected


def test_a_new_stream_finds_empty_slots(client: Client) -> None:
    """And does not wait for the steps that the old one left behind."""
    health = shard_pb2.HealthRequest()
    begun = client.stub.Health(health).steps_begun
    for _ in range(3):
        stream = client.open()
        stream.write(*(encode_plan(prompt_step(step_id, length=512)) for step_id in range(40)))
        assert stream.read().step_id == 0
        stream.cancel()
    stream = client.open()
    stream.write(encode_plan(prompt_step(0, length=8)))
    assert stream.read().step_id == 0
    assert client.stub.Health(health).steps_begun - begun < 60, "of 121 steps that were ordered"
    stream.cancel()


def test_a_newer_stream_takes_over(
    client: Client, program: Program, expected: list[list[tuple[int, float]]]
) -> None:
    """For nothing may tell this shard that the old one's router is dead."""
    old = client.open()
    old.write(encode_plan(prompt_step(0)))
    assert old.read().step_id == 0
    assert run_over_wire([client.open()], program) == expected
    with pytest.raises(grpc.RpcError) as refused:
        old.read()
    assert refused.value.code() == grpc.StatusCode.ABORTED
    assert "a newer stream took the place of this one" in refused.value.details()


def test_a_stream_that_says_nothing_takes_nothing_over(client: Client) -> None:
    stream = client.open()
    stream.write(encode_plan(prompt_step(0)))
    stream.read()
    with pytest.raises(grpc.RpcError):
        list(client.stub.Execute(iter([encode_plan(prompt_step(0))])))
    assert list(client.stub.Execute(iter([]))) == []
    stream.write(encode_plan(prompt_step(1)))
    assert stream.read().step_id == 1
    stream.cancel()


def test_what_is_no_order_ends_its_stream(shard: Shard, client: Client) -> None:
    with grpc.insecure_channel(f"unix:{shard.socket}") as channel:
        execute = channel.stream_stream("/penstock.shard.v2.Shard/Execute", request_serializer=bytes)
        for orders in ([b"\xff\xff"], [encode_stream_limits(alone(REQUESTS).limits).SerializeToString(), b"\xff\xff"]):
            with pytest.raises(grpc.RpcError) as refused:
                list(execute(iter(orders), timeout=SECONDS))
            assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
            assert "penstock.shard.v2.Order" in refused.value.details()


def test_damaged_token_ids_are_named(client: Client) -> None:
    row = shard_pb2.Row(token_ids=struct.pack("<I", 5) + b"x")
    stream = client.open()
    stream.write(shard_pb2.Order(plan=shard_pb2.Plan(rows=[row])))
    with pytest.raises(grpc.RpcError) as refused:
        stream.read()
    assert "plan 0, rows[0].token_ids has 5 bytes, no multiple of 4" in refused.value.details()


def wait_for_a_mask(client: Client) -> ClientStream:
    """A stream whose step 0 has run and waits: for nobody else reads what the model gave while the shard is busy."""
    row = make_row(0, 0, range(3, 11), new_blocks=[0], initial_state=initial(8), late_mask=True)
    begun = client.stub.Health(shard_pb2.HealthRequest()).steps_begun
    stream = client.open()
    stream.write(encode_plan(Plan(0, (row,))))
    while client.stub.Health(shard_pb2.HealthRequest(), timeout=SECONDS).steps_begun == begun:
        pass
    return stream


def test_a_step_waits_for_its_masks_while_the_shard_answers(client: Client) -> None:
    stream = wait_for_a_mask(client)
    stream.write(encode_plan(prompt_step(1, slot=1)))
    health = client.stub.Health(shard_pb2.HealthRequest(), timeout=SECONDS)
    assert health.steps_begun == health.steps_ended + 1
    bits = bytearray(1024)
    bits[500] = 1 << 3
    stream.write(encode_masks(0, {0: bytes(bits)}))
    result = stream.read()
    assert rows_of(result) == {0: RowResult(0, (4003,), (0.0,))}
    assert stream.read().step_id == 1
    stream.cancel()


@pytest.mark.parametrize(("order", "message"), [
    (encode_masks(1, {0: b"\x01" * 1024}), "masks.step_id is 1, the steps that wait for masks are [0]"),
    (encode_masks(0, {1: b"\x01" * 1024}), "masks of step 0, slot 1: the slots that wait for a mask are [0]"),
    (encode_masks(0, {0: b"\x01" * 1020}), "masks of step 0, slot 0: 1020 bytes, the row samples 1 tokens and"),
    (encode_masks(0, {0: bytes(1024)}), "masks of step 0, slot 0: none of 8192 tokens is allowed"),
    (encode_plan(prompt_step(5)), "plan.step_id is 5, the next one of this stream is 1"),
    (None, "the orders ended before the masks of the steps [0]"),
])
def test_a_wait_ends_with_a_bad_order(
    client: Client, program: Program, expected: list[list[tuple[int, float]]], order: shard_pb2.Order | None,
    message: str,
) -> None:
    stream = wait_for_a_mask(client)
    if order is None:
        stream.done_writing()
    else:
        stream.write(order)
    with pytest.raises(grpc.RpcError) as refused:
        stream.read()
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert message in refused.value.details()
    assert run_over_wire([client.open()], program) == expected


def test_a_wait_ends_with_its_stream(
    client: Client, program: Program, expected: list[list[tuple[int, float]]]
) -> None:
    """Also when the stream does not know yet that it has ended."""
    wait_for_a_mask(client).cancel()
    assert run_over_wire([client.open()], program) == expected
    old = wait_for_a_mask(client)
    assert run_over_wire([client.open()], program) == expected
    with pytest.raises(grpc.RpcError) as refused:
        old.read()
    assert refused.value.code() == grpc.StatusCode.ABORTED


def test_a_router_that_leaves_is_no_error(shard: Shard, client: Client) -> None:
    """Its orders end before the shard hears that it has left, or after."""
    before = len(shard.log.read_text())
    for _ in range(20):
        wait_for_a_mask(client).cancel()
    client.open().cancel()
    assert "stream ended" not in shard.log.read_text()[before:]


def test_a_shard_ends_in_order_while_a_step_waits(tmp_path: Path) -> None:
    """The step ends when its masks have come, and is answered."""
    shard = Shard(tmp_path, **MODEL)
    try:
        shard.wait_until_listening()
        with clients([shard]) as (client,):
            stream = wait_for_a_mask(client)
            shard.process.send_signal(signal.SIGTERM)
            stream.write(encode_masks(0, {}))
            assert len(rows_of(stream.read())) == 1
            assert shard.process.wait(SECONDS) == 0
    finally:
        shard.process.kill()
        shard.process.wait()


async def test_the_last_results_reach_the_router_before_the_shard_ends(tmp_path: Path) -> None:
    """The worker has many of them when it stops, more than go out while the event loop turns once."""
    orders: list[Order] = []

    def stop() -> None:
        for step_id in range(100):
            orders[0].caller.answer(StepResult(step_id, (), 0, 0))

    config = ShardConfig(DEMO_MODEL, listen=f"unix:{tmp_path / 'shard.sock'}")
    ready = asyncio.Event()
    worker = mock.Mock(submit=orders.append, stop=stop)
    serving = asyncio.create_task(serve(config, mock.Mock(vocab_size=8, answers=True), worker, ready.set))
    await ready.wait()
    async with asyncio.timeout(SECONDS), grpc.aio.insecure_channel(config.listen) as channel:
        stream = services.stub(channel, shard_pb2).Execute()
        await stream.write(encode_stream_limits(LIMITS))
        while not orders:
            await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)
        assert [result.step_id async for result in stream] == list(range(100))
    await serving


async def test_ranks_compare_orders_as_they_were_received() -> None:
    """Bytes that decode to the same order, and are not what this process would have encoded, are kept as they are."""
    limits = encode_stream_limits(alone(REQUESTS).limits).SerializeToString()
    first, second = (shard_pb2.Order(plan=plan).SerializeToString() for plan in (
        shard_pb2.Plan(cleared_slots=[3]), shard_pb2.Plan(rows=[shard_pb2.Row(token_ids=struct.pack("<I", 5))])))
    backwards = second + first           # a message in two parts, which protobuf joins
    taken: list[Order] = []
    servicer = ShardServicer(mock.Mock(vocab_size=8, answers=True), mock.Mock(submit=taken.append))

    async def orders() -> AsyncIterator[bytes]:
        yield limits
        yield backwards

    await servicer._read(orders(), Stream(vocab_size=8))
    assert [order.encoded for order in taken] == [limits, backwards, b""]
    assert isinstance(taken[1].work, Plan)
    assert (taken[1].work.cleared_slots, len(taken[1].work.rows)) == ((3,), 1)
    assert shard_pb2.Order.FromString(backwards).SerializeToString() != backwards
