"""Adapters are loaded and unloaded over gRPC, beside the steps of a real shard."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from penstock.contract.sampling import Sampling
from penstock.contract.stream_limits import StreamLimits
from penstock.protos import shard_pb2
from penstock.shard.communication.distributed import Group
from penstock.shard.execution.executor import Executor
from tests.adapter_files import make_adapter
from tests.router.adapters.folders import digest_of
from tests.shard.processes import Client, Shard, clients, new_epoch, outputs_of, run_over_wire, running, write_program
from tests.shard.ranks import make_config, run_program
from tests.shard.step_programs import Program, Request, batched
from tests.tiny_models import DEMO_MODEL

REQUESTS = [
    Request([5, 6, 7, 8], 6, adapter=1),
    Request(list(range(100, 140)), 5, Sampling(do_sample=True, seed=3, top_k=40), adapter=7),
    Request(list(range(100, 140)), 5, Sampling(do_sample=True, seed=3, top_k=40)),
    Request([9], 7, adapter=1),
]
Answers = list[list[tuple[int, float]]]


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    folder = tmp_path_factory.mktemp("adapters")
    return {number: make_adapter(folder / str(number), DEMO_MODEL, 8, seed=number) for number in (1, 7)}


@pytest.fixture(scope="module")
def program() -> Program:
    return batched(REQUESTS, seed=1)


@pytest.fixture(scope="module")
def expected(program: Program, adapters: dict[int, Path]) -> Answers:
    """What the same orders give in this process."""
    executor = Executor(make_config(DEMO_MODEL, "float32"), Group())
    for number, path in adapters.items():
        executor.adapters.load(number, path).result()
    return [[(sampled.token_id, sampled.logprob) for sampled in tokens] for tokens in run_program(executor, program)]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Shard]]:
    with running(tmp_path_factory.mktemp("shards"), world_size=2, model=str(DEMO_MODEL), dtype="float32",
                 kv_memory=64 << 20) as shards:
        yield shards


@pytest.fixture
def routers(shards: list[Shard]) -> Iterator[list[Client]]:
    with clients(shards) as opened:
        yield opened


def load(client: Client, number: int, path: Path, limits: StreamLimits, digest: str = "") -> int:
    """For the streams that are opened with these limits."""
    request = shard_pb2.LoadAdapterRequest(adapter=number, path=str(path), digest=digest, epoch=limits.epoch)
    return client.stub.LoadAdapter(request, timeout=60).num_bytes


def unload(client: Client, number: int, limits: StreamLimits) -> None:
    client.stub.UnloadAdapter(shard_pb2.UnloadAdapterRequest(adapter=number, epoch=limits.epoch), timeout=60)


def test_load_run_and_unload(
    routers: list[Client], adapters: dict[int, Path], program: Program, expected: Answers
) -> None:
    assert all(client.stub.Describe(shard_pb2.DescribeRequest()).takes_adapters for client in routers)
    digest = digest_of(adapters[1])
    epoch = new_epoch()
    for client in routers:
        assert load(client, 1, adapters[1], epoch, digest) == load(client, 7, adapters[7], epoch) > 100_000
    assert run_over_wire([client.open(epoch) for client in routers], program) == expected
    for client in routers:
        unload(client, 1, epoch)
        unload(client, 1, epoch)
        unload(client, 12345, epoch)


def test_loads_beside_steps_change_nothing(
    routers: list[Client], adapters: dict[int, Path], program: Program, expected: Answers, tmp_path: Path
) -> None:
    """Neither those that succeed nor those that fail."""
    broken = make_adapter(tmp_path / "broken", DEMO_MODEL, 8)
    with (broken / "adapter_model.safetensors").open("r+b") as file:
        file.truncate(5000)
    epoch = new_epoch()
    for client in routers:
        for number, path in adapters.items():
            load(client, number, path, epoch)
    streams = [client.open(epoch) for client in routers]
    write_program(streams, program)
    for client in routers:
        load(client, 20, adapters[1], epoch)
        with pytest.raises(grpc.RpcError) as error:
            load(client, 21, broken, epoch)
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert str(error.value.details()).startswith(
            f"{broken}/adapter_model.safetensors: it is no safetensors file, or cut short or damaged: it has 5000 ")
        unload(client, 20, epoch)
    answers: Answers = [[] for _ in REQUESTS]
    for step, owners in zip(program.steps, program.owners, strict=True):
        results = [stream.read() for stream in streams]
        outputs_of(step, owners, results[0], answers)
    assert answers == expected
