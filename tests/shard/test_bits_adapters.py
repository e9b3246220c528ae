"""The bit contract of test_bits.py, for rows with adapters beside others and rows without."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from penstock.contract.sampling import Sampling
from penstock.shard.communication.distributed import Group
from penstock.shard.config import ShardConfig
from penstock.shard.execution.executor import Executor
from penstock.shard.execution.graphs import StepGraphs
from tests import kernel_sets
from tests.adapter_files import LINEARS, make_adapter
from tests.shard.ranks import Outputs, make_config, run, run_program
from tests.shard.scheduler_with_executor import Traffic, run_traffic
from tests.shard.step_programs import Request, alone, batched
from tests.shard.test_bits import set_threads
from tests.shard.weights.library_files import FOLDER
from tests.tiny_models import make_tiny

RANKS = (1, 8, 16, 64, 16, 5, 16, 20)
VOCAB = 160
Adapters = dict[int, Path]


@pytest.fixture(scope="module", autouse=True, params=[
    kernel_sets.PROCESSOR_SETS[0],
    *(pytest.param(name, marks=pytest.mark.slow) for name in kernel_sets.PROCESSOR_SETS[1:])])
def kernel_set(request: pytest.FixtureRequest) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        kernel_sets.use(monkeypatch, request.param)
        yield request.param


@pytest.fixture(scope="module", params=[pytest.param("float32", marks=pytest.mark.slow), "bfloat16", "int4"])
def config(
    request: pytest.FixtureRequest, kernel_set: str, tmp_path_factory: pytest.TempPathFactory
) -> ShardConfig:
    """Kernels that do not serve on this machine have one of the three each, and --every-case runs all."""
    number = kernel_sets.PROCESSOR_SETS[::-1].index(kernel_set)
    own = ("float32", "bfloat16", "int4")[number % 3]
    is_served = kernel_set == kernel_sets.PROCESSOR_SETS[0]
    if request.param != own and not is_served and not request.config.getoption("every_case"):
        pytest.skip("--every-case also runs it on this path")
    if request.param == "int4":          # of a library, in groups
        return make_config(FOLDER / "awq", "bfloat16")
    model = make_tiny(tmp_path_factory.mktemp("model") / "tiny", heads=8, kv_heads=4, has_bias=True)
    return make_config(model, request.param)


@pytest.fixture(scope="module")
def adapters(config: ShardConfig, tmp_path_factory: pytest.TempPathFactory) -> Adapters:
    """Of all linears, of some, and of the head."""
    folder = tmp_path_factory.mktemp("adapters")
    targets = [LINEARS, (*LINEARS, "lm_head"), ("q_proj", "v_proj"), ("k_proj", "down_proj"), LINEARS, ("o_proj",),
               ("gate_proj", "lm_head"), LINEARS]
    return {number: make_adapter(folder / str(number), config.model, rank, seed=number, targets=own)
            for number, (rank, own) in enumerate(zip(RANKS, targets, strict=True), 1)}


@pytest.fixture(scope="module")
def requests(config: ShardConfig) -> list[Request]:
    """Two of each adapter, and four without; the first of each pair has the same prompt."""
    rng = np.random.default_rng(3)
    vocab = 64 if config.model.is_relative_to(FOLDER) else VOCAB
    samplings = [Sampling(), Sampling(do_sample=True, seed=2, temperature=0.8, top_p=0.9)]
    prompt = rng.integers(3, vocab, 37).tolist()
    numbers = [*range(9), *range(9), 0, 0]
    return [Request(prompt if index < 9 else rng.integers(3, vocab, length).tolist(), 2 + index % 5,
                    samplings[index % 2], wants_prompt_logprobs=index % 3 == 0, adapter=number)
            for index, (number, length) in enumerate(zip(numbers, rng.integers(1, 60, len(numbers)), strict=True))]


@pytest.fixture(scope="module")
def expected(
    kernel_set: str, config: ShardConfig, adapters: Adapters, requests: list[Request],
    tmp_path_factory: pytest.TempPathFactory,
) -> Outputs:
    """Every request by itself, its prompt in one step."""
    (outputs,) = run(config, [alone(requests)], tmp_path_factory.mktemp("alone"), adapters=adapters)
    return outputs


def test_adapters_change_answers_and_those_without_stay(
    config: ShardConfig, requests: list[Request], expected: Outputs, tmp_path: Path
) -> None:
    plain = [replace(request, adapter=0) for request in requests]
    (outputs,) = run(config, [alone(plain)], tmp_path)
    for request, own, base in zip(requests, expected, outputs, strict=True):
        assert (own == base) == (request.adapter == 0)
    assert len({own[0].logits for own in expected[:9]}) == 9


def test_batched_and_chunked_is_alone(
    config: ShardConfig, adapters: Adapters, requests: list[Request], expected: Outputs, tmp_path: Path
) -> None:
    programs = [batched(requests, 1), batched(requests, 2), alone(requests, chunk=3)]
    assert run(config, programs, tmp_path, adapters=adapters) == [expected] * 3


@pytest.mark.parametrize("world_size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_many_shards_are_one(
    config: ShardConfig, adapters: Adapters, requests: list[Request], expected: Outputs, tmp_path: Path, world_size: int
) -> None:
    assert run(config, [batched(requests, 3)], tmp_path, world_size, adapters) == [expected]


def test_two_threads_are_one(
    config: ShardConfig, adapters: Adapters, requests: list[Request], expected: Outputs, tmp_path: Path
) -> None:
    set_threads(2)
    try:
        assert run(config, [batched(requests, 4)], tmp_path, adapters=adapters) == [expected]
    finally:
        set_threads(1)


@contextmanager
def op_by_op() -> Iterator[None]:
    """No layer has a faster form."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr("penstock.kernels.fused.is_available", lambda: False)
        yield


def test_op_by_op_is_fused(
    config: ShardConfig, adapters: Adapters, requests: list[Request], expected: Outputs, tmp_path: Path
) -> None:
    with op_by_op():
        assert run(config, [batched(requests, 5)], tmp_path, adapters=adapters) == [expected]


def test_steps_with_adapters_are_not_captured(
    config: ShardConfig, adapters: Adapters, requests: list[Request], expected: Outputs
) -> None:
    executor = Executor(config, Group())
    for number, path in adapters.items():
        executor.adapters.load(number, path).result()
    graphs = executor.memory.graphs = StepGraphs(
        executor.model, executor.memory.caches, executor.memory.bounds, (1, 4, len(requests)), (64,), len(requests))
    graphs.capture()
    with (mock.patch.object(graphs, "decode", wraps=graphs.decode) as decode,
          mock.patch.object(graphs, "forward", wraps=graphs.forward) as forward):
        assert run_program(executor, alone(requests)) == expected
    without = [request for request in requests if not request.adapter]
    assert decode.call_count + forward.call_count >= sum(request.num_tokens for request in without)
    assert forward.call_count > 0
    assert all(call.args[1].adapters is None for call in decode.call_args_list + forward.call_args_list)


@pytest.mark.parametrize("traffic", [
    pytest.param(Traffic(depth=2, arrivals=range(0, 24, 4), adapter=2), id="cached"),
    pytest.param(Traffic(depth=2, losses=(2, 9, 30), adapter=2), id="replayed"),
])
def test_the_schedule_changes_nothing(
    config: ShardConfig, adapters: Adapters, requests: list[Request], expected: Outputs, traffic: Traffic
) -> None:
    """One adapter's requests: what blocks of a prefix belong to is the router's to know."""
    chosen = [index for index, request in enumerate(requests) if request.adapter == 2]
    own = [request for index in chosen for request in [requests[index]] * 3]
    executor = Executor(config, Group())
    executor.adapters.load(2, adapters[2]).result()
    outputs, counted = run_traffic(executor, own, traffic)
    assert outputs == [expected[index] for index in chosen for _ in range(3)]
    assert counted.hit_tokens > 0 or traffic.losses
