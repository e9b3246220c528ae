"""With a draft model, answers keep their bits, whatever it proposes; and what it proposes is what it would say."""

import pickle
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.synchronize import Barrier
from pathlib import Path
from unittest import mock

import pytest

from penstock.contract.plan import Plan
from penstock.contract.sampling import Sampling
from penstock.contract.step_result import StepResult
from penstock.contract.stream_limits import StreamLimits
from penstock.shard.communication.distributed import Group, connect
from penstock.shard.execution.executor import Executor
from penstock.shard.execution.masks import Masks
from tests.shard.ranks import Outputs, make_config, run
from tests.shard.scheduler_with_executor import Counted, Traffic, run_traffic
from tests.shard.spawned_ranks import Results, run_ranks
from tests.shard.step_programs import Request, alone
from tests.shard.test_bits import conversations
from tests.tiny_models import make_tiny

VOCAB = 160


@pytest.fixture(scope="module", params=[pytest.param("float32", marks=pytest.mark.slow), "bfloat16"])
def dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("model") / "tiny", heads=8, kv_heads=4)


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another model of the same vocabulary, which says other things and has a shorter context."""
    return make_tiny(tmp_path_factory.mktemp("model") / "stranger", heads=4, kv_heads=2, layers=1, seed=5, context=96)


def outputs_of(
    model: Path, draft: Path, dtype: str, requests: list[Request], traffic: Traffic, folder: Path
) -> tuple[Outputs, Outputs, Counted]:
    config = make_config(model, dtype)
    (expected,) = run(config, [alone(requests)], folder)
    outputs, counted = run_traffic(
        Executor(replace(config, draft_model=draft), Group()), requests, traffic, expected)
    return expected, outputs, counted


@pytest.mark.parametrize("traffic", [
    pytest.param(Traffic(proposals=4), id="depth 1", marks=pytest.mark.slow),
    pytest.param(Traffic(depth=2, proposals=6), id="depth 2", marks=pytest.mark.slow),
    pytest.param(Traffic(depth=2, proposals=3, arrivals=range(0, 66, 6)), id="cached",
                 marks=pytest.mark.slow),
    pytest.param(Traffic(depth=2, proposals=3, losses=(2, 9, 30), keeps_memory=True), id="continued"),
    pytest.param(Traffic(depth=3, proposals=3, num_blocks=11, losses=(5, 25), arrivals=range(0, 22, 2)),
                 id="all of it"),
])
def test_proposals_change_nothing(
    model: Path, stranger: Path, dtype: str, traffic: Traffic, tmp_path: Path
) -> None:
    for draft in (model, stranger):
        expected, outputs, counted = outputs_of(model, draft, dtype, conversations(VOCAB), traffic, tmp_path)
        assert outputs == expected
        assert 0 < counted.accepted < counted.drafted


def test_a_model_that_drafts_for_itself_is_right(model: Path, dtype: str, tmp_path: Path) -> None:
    """Greedy answers, beside whose prompts it is asked at any time: all that it proposes is right."""
    requests = [replace(request, num_tokens=60, sampling=Sampling(), mask_seed=None)
                for request in conversations(VOCAB)]
    requests = [replace(request, prompt=[index, *request.prompt]) for index, request in enumerate(requests, 3)]
    traffic = Traffic(depth=2, proposals=4, arrivals=range(0, 33, 3), guesses_too=False)
    expected, outputs, counted = outputs_of(model, model, dtype, requests, traffic, tmp_path)
    assert outputs == expected
    assert counted.accepted == counted.drafted > 150


def test_two_ranks_are_one(model: Path, stranger: Path, dtype: str, tmp_path: Path) -> None:
    """Both ranks run the proposals of rank 0: the steps of one rank have the same results on two."""
    requests = conversations(VOCAB)
    config = replace(make_config(model, dtype), draft_model=stranger)
    (expected,) = run(make_config(model, dtype), [alone(requests)], tmp_path)
    executor = Executor(config, Group())
    recorded: list[tuple[Plan, Masks, StepResult]] = []
    run_step = executor.execute

    def execute(step: Plan, late_masks: Callable[[], Masks] = dict) -> StepResult:
        result = run_step(step, late_masks)
        recorded.append((step, late_masks(), result))
        return result

    with mock.patch.object(executor, "execute", execute):
        run_traffic(executor, requests, Traffic(proposals=4), expected)
    assert sum(row.num_proposals for step, _, _ in recorded for row in step.rows) > 50
    (tmp_path / "steps").write_bytes(pickle.dumps((config, [(step, masks) for step, masks, _ in recorded])))
    first, _ = run_ranks(run_recorded, 2, tmp_path)
    assert pickle.loads(first["results"]) == [result.rows for _, _, result in recorded]


def run_recorded(rank: int, world_size: int, folder: Path, barrier: Barrier) -> Results:
    config, steps = pickle.loads((folder / "steps").read_bytes())
    rendezvous = f"file://{folder / 'store'}"
    config = replace(config, rank=rank, world_size=world_size, rendezvous=rendezvous)
    executor = Executor(config, connect(rendezvous, rank, world_size))
    most = executor.memory.bounds.context_length // executor.memory.bounds.block_size
    executor.open(StreamLimits(63, 64, most, 1))
    results = [executor.execute(step, lambda masks=masks: masks).rows for step, masks in steps]
    barrier.wait()
    return {"results": pickle.dumps(results)}
