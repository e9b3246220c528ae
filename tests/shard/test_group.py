"""Two shard processes whose router breaks off anywhere: they stay, and serve the next one as if nothing had been. They
split the layers, or each has some of them."""

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from penstock.contract.sampling import Sampling
from penstock.protos import shard_pb2
from penstock.shard.communication.distributed import Group
from penstock.shard.execution.executor import Executor
from tests.shard.processes import (
    ROOT,
    Client,
    ClientStream,
    Shard,
    clients,
    encode_masks,
    encode_plan,
    new_epoch,
    run_over_wire,
    running,
)
from tests.shard.ranks import KV_MEMORY, make_config, run_program
from tests.shard.step_programs import Request, batched, prompt_step
from tests.tiny_models import make_tiny

REQUESTS = [
    Request([5, 6, 7, 8], 4),
    Request(list(range(100, 140)), 3, Sampling(do_sample=True, seed=11, top_k=40, repetition_penalty=1.3)),
    Request([9], 5, Sampling(do_sample=True, seed=4, temperature=1.2, top_p=0.9, allowed_ids=tuple(range(3, 90)),
                             bad_word_ids=(7, 8, 9), bad_word_lengths=(2, 1))),
]
PROGRAM = batched(REQUESTS, seed=1)
MASKED = batched([
    replace(request, mask_seed=seed, wants_prompt_logprobs=True) for seed, request in enumerate(REQUESTS)], seed=1)
PAUSE = 0.1
"""Seconds in which an order reaches a shard and is proposed to the group; without it, it may still be on its way."""
NOTICE = 1.0
"""Seconds in which a busy machine's shards notice that their streams ended, which nothing outside of them shows."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.slow)], ids=["one stage", "two stages"])
def num_stages(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def shards(model: Path, num_stages: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Shard]]:
    """The one that answers comes first."""
    folder = tmp_path_factory.mktemp("group")
    with running(folder, world_size=2, model=str(model), kv_memory=KV_MEMORY,
                 pipeline_parallel_size=num_stages) as shards:
        yield shards if num_stages == 1 else shards[::-1]


@pytest.fixture(scope="module")
def expected(model: Path) -> list[list[tuple[int, float]]]:
    """What one shard computes, in this process."""
    outputs = run_program(Executor(make_config(model), Group()), PROGRAM)
    return [[(sampled.token_id, sampled.logprob) for sampled in tokens] for tokens in outputs]


def open_all(group: list[Client]) -> list[ClientStream]:
    limits = new_epoch()
    return [client.open(limits) for client in group]


def run_step(streams: list[ClientStream], step_id: int) -> None:
    for stream in streams:
        stream.write(encode_plan(PROGRAM.steps[step_id]))
    for stream in streams:
        assert stream.read().step_id == step_id


def serve(shards: list[Shard]) -> list[list[tuple[int, float]]]:
    """A router that lives: its results, within a time in which nothing can have waited for a timeout."""
    begun = time.monotonic()
    with clients(shards) as group:
        outputs = run_over_wire(open_all(group), PROGRAM)
    assert time.monotonic() - begun < 20.0
    return outputs


def test_facts_differ_in_rank_and_memory_only(shards: list[Shard], num_stages: int) -> None:
    with clients(shards) as group:
        facts = [client.stub.Describe(shard_pb2.DescribeRequest()) for client in group]
    ranks = [0, 1] if num_stages == 1 else [1, 0]
    assert [(fact.rank, fact.answers, fact.world_size) for fact in facts] == [(ranks[0], True, 2), (ranks[1], False, 2)]
    for fact in facts:
        fact.ClearField("rank")
        fact.ClearField("answers")
        fact.ClearField("memory_id")
    assert facts[0] == facts[1]


def test_two_shards_answer_as_one(shards: list[Shard], expected: list[list[tuple[int, float]]]) -> None:
    assert serve(shards) == expected


def test_masks_come_to_the_shard_that_answers(shards: list[Shard], model: Path) -> None:
    outputs = run_program(Executor(make_config(model), Group()), MASKED)
    with clients(shards) as group:
        assert run_over_wire(open_all(group), MASKED, vocab_size=160) == [
            [(sampled.token_id, sampled.logprob) for sampled in tokens] for tokens in outputs]


def test_masks_for_another_shard_are_refused(
    shards: list[Shard], num_stages: int, expected: list[list[tuple[int, float]]]
) -> None:
    with clients(shards) as group:
        streams = open_all(group)
        streams[1].write(encode_plan(MASKED.steps[0]), encode_masks(0, {}))
        with pytest.raises(grpc.RpcError) as refused:
            streams[1].read()
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        ranks = "0; this one has 1" if num_stages == 1 else "1; this one has 0"
        assert f"masks are for the shard that answers, which has rank {ranks}" in refused.value.details()
    assert serve(shards) == expected


def test_masks_that_never_come(shards: list[Shard], expected: list[list[tuple[int, float]]]) -> None:
    """Both shards are in the same step when the router dies: one waits for masks, the other for the tokens."""
    first = next(i for i, seeds in enumerate(MASKED.mask_seeds) if seeds)
    for plans in (MASKED.steps[:first + 1], MASKED.steps):
        with clients(shards) as group:
            streams = open_all(group)
            for stream in streams:
                stream.write(*map(encode_plan, plans))
            assert [stream.read().step_id for stream in streams * first] == [i // 2 for i in range(2 * first)]
            time.sleep(PAUSE)
            for stream in streams:
                stream.cancel()
        assert serve(shards) == expected


@pytest.mark.parametrize("pause", [0.0, PAUSE])
@pytest.mark.parametrize("favoured", [0, 1])
@pytest.mark.parametrize("num_common", [0, 1, 3])
def test_a_plan_that_only_one_shard_got(
    shards: list[Shard], expected: list[list[tuple[int, float]]], favoured: int, num_common: int, pause: float
) -> None:
    for num_extra in (1, 2):
        with clients(shards) as group:
            streams = open_all(group)
            for stream in streams:
                stream.write(*map(encode_plan, PROGRAM.steps[:num_common]))
            streams[favoured].write(*map(encode_plan, PROGRAM.steps[num_common:num_common + num_extra]))
            time.sleep(pause)
            for stream in streams:
                stream.cancel()
        assert serve(shards) == expected


@pytest.mark.parametrize("pause", [0.0, PAUSE])
@pytest.mark.parametrize("favoured", [0, 1])
def test_stream_limits_that_only_one_shard_got(
    shards: list[Shard], expected: list[list[tuple[int, float]]], favoured: int, pause: float
) -> None:
    for limits in (new_epoch(), replace(new_epoch(), epoch=2**64 - 1), replace(new_epoch(), max_slots=5)):
        with clients(shards) as group:
            stream = group[favoured].open(limits)
            stream.write(encode_plan(prompt_step(0)))
            time.sleep(pause)
            stream.cancel()
        assert serve(shards) == expected


@pytest.mark.slow
def test_routers_that_all_count_from_one(shards: list[Shard], expected: list[list[tuple[int, float]]]) -> None:
    """Equal stream limits are told apart by their streams, once the shards have noticed that the old ones ended."""
    for favoured in (0, 1):
        with clients(shards) as group:
            stream = group[favoured].open()
            stream.write(encode_plan(PROGRAM.steps[0]))
            time.sleep(PAUSE)
        time.sleep(NOTICE)
        with clients(shards) as group:
            assert run_over_wire([client.open() for client in group], PROGRAM) == expected
        time.sleep(NOTICE)


def test_routers_that_die_one_after_the_other(
    shards: list[Shard], expected: list[list[tuple[int, float]]]
) -> None:
    for favoured in (0, 0, 1, 0, 1, 1, 0, 1):
        with clients(shards) as group:
            stream = group[favoured].open(new_epoch())
            stream.write(encode_plan(PROGRAM.steps[0]))
            time.sleep(PAUSE / 4)
    assert serve(shards) == expected


@pytest.mark.parametrize("favoured", [0, 1])
def test_a_new_stream_while_the_old_ones_seem_alive(
    shards: list[Shard], expected: list[list[tuple[int, float]]], favoured: int
) -> None:
    """As over TCP, when the router's machine is gone: nothing ends the old streams but the new ones."""
    with clients(shards) as group:
        old = open_all(group)
        run_step(old, 0)
        old[favoured].write(encode_plan(PROGRAM.steps[1]))
        time.sleep(PAUSE)
        assert serve(shards) == expected
        for stream in old:
            with pytest.raises(grpc.RpcError) as refused:
                stream.read()
            assert refused.value.code() == grpc.StatusCode.ABORTED


@pytest.mark.parametrize("favoured", [0, 1])
def test_one_broken_stream_of_a_living_router(
    shards: list[Shard], expected: list[list[tuple[int, float]]], favoured: int
) -> None:
    """It opens again where it lost the stream: the other shard tells it to open there too."""
    with clients(shards) as group:
        streams = open_all(group)
        run_step(streams, 0)
        streams[favoured].cancel()
        streams[1 - favoured].write(encode_plan(PROGRAM.steps[1]))
        limits = new_epoch()
        replacement = group[favoured].open(limits)
        with pytest.raises(grpc.RpcError) as refused:
            streams[1 - favoured].read()
        assert "another shard of the group has a newer stream" in refused.value.details()
        other = group[1 - favoured].open(limits)
        pair = [replacement, other] if favoured == 0 else [other, replacement]
        assert run_over_wire(pair, PROGRAM) == expected


ROUTER = """
import pickle, sys, time
from pathlib import Path
from tests.shard.processes import ClientStream, encode_stream_limits, encode_plan, new_epoch
from penstock.protos import services, shard_pb2
import grpc

sockets, steps, favoured = pickle.loads(bytes.fromhex(sys.argv[1]))
streams = [ClientStream(services.stub(grpc.insecure_channel(f"unix:{path}"), shard_pb2)) for path in sockets]
limits = new_epoch()
for stream in streams:
    stream.write(encode_stream_limits(limits))
for step in steps[:-1]:
    for stream in streams:
        stream.write(encode_plan(step))
    for stream in streams:
        stream.read()
streams[favoured].write(encode_plan(steps[-1]))
print("ready", flush=True)
time.sleep(100)
"""


@pytest.mark.slow
@pytest.mark.parametrize("favoured", [0, 1])
def test_a_router_that_is_killed(
    shards: list[Shard], expected: list[list[tuple[int, float]]], favoured: int
) -> None:
    job = pickle.dumps(([str(shard.socket) for shard in shards], PROGRAM.steps[:4], favoured)).hex()
    with subprocess.Popen([sys.executable, "-c", ROUTER, job], cwd=ROOT, stdout=subprocess.PIPE) as router:
        assert router.stdout is not None
        assert router.stdout.readline() == b"ready\n"
        time.sleep(PAUSE)
        os.kill(router.pid, signal.SIGKILL)
    assert serve(shards) == expected


@pytest.mark.slow
def test_a_waiting_group_ends_on_sigterm(model: Path, tmp_path: Path) -> None:
    """`running` asks for exit code 0 of every rank, also of one that holds a plan alone."""
    settings = {"model": str(model), "kv_memory": KV_MEMORY}
    with running(tmp_path, world_size=2, **settings) as shards, clients(shards) as group:
        streams = open_all(group)
        streams[0].write(encode_plan(PROGRAM.steps[0]))
        time.sleep(PAUSE)


@pytest.mark.parametrize(("num_stages", "killed"), [
    (1, 1), *(pytest.param(2, killed, marks=pytest.mark.slow) for killed in (0, 1))])
def test_a_dead_shard_ends_the_other(model: Path, tmp_path: Path, num_stages: int, killed: int) -> None:
    settings = {"model": str(model), "kv_memory": KV_MEMORY, "world_size": 2, "pipeline_parallel_size": num_stages}
    settings["rendezvous"] = f"file://{tmp_path / 'store'}"
    pair = [Shard(tmp_path, rank=rank, **settings) for rank in range(2)]
    try:
        for shard in pair:
            shard.wait_until_listening()
        with clients(pair) as group:
            streams = open_all(group)
            pair[killed].process.kill()
            streams[1 - killed].write(encode_plan(PROGRAM.steps[0]))
            assert pair[1 - killed].process.wait(10) == 1
        assert not pair[1 - killed].socket.exists()
    finally:
        for shard in pair:
            shard.process.kill()
            shard.process.wait()
